"""From a float model to the quantised one that the accelerator runs best."""

from .static_quantisation import quantize

__all__ = ["quantize"]
