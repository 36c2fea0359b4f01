"""Hand it a training script and a TPU type: it gets the hardware and keeps the run alive."""

__version__ = "0.1.0"

__all__ = ["__version__"]
