"""The Cloud TPU API as a pure function of a world, a request and the time."""
