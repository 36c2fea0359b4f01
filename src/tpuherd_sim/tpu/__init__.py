"""The Cloud TPU API as a pure function from a world, a request and the time to an answer."""
