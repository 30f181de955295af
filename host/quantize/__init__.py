"""Quantisation of float models for the accelerator."""

from .static_quantisation import quantize

__all__ = ["quantize"]
