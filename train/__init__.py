"""Training of fast pointwise convolutions (``docs/fpc.md``) and binary layers (``docs/binary.md``) in PyTorch.

Needs the extra ``train``.
"""

from __future__ import annotations

from .binary import BinaryConv2d, BinaryLinear, clip_weights
from .calibration import calibrate
from .conversion import fold_batch_norm, parameter_groups, replace_pointwise
from .export import export_onnx
from .layer import FastPointwiseConv2d
from .sensitivity import Measured, analyse, plot, propose

__all__ = [
    "BinaryConv2d",
    "BinaryLinear",
    "FastPointwiseConv2d",
    "Measured",
    "analyse",
    "calibrate",
    "clip_weights",
    "export_onnx",
    "fold_batch_norm",
    "parameter_groups",
    "plot",
    "propose",
    "replace_pointwise",
]
