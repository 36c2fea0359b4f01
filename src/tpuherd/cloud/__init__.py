"""The client of Google Cloud: the Cloud TPU API, and the few Compute calls that we need."""
