"""inferd: an inference server that speaks the standard protocols exactly."""

__all__ = ["__version__"]

__version__ = "0.1.0"
