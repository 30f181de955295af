"""Training of fast pointwise convolutions in PyTorch, see ``docs/fpc.md``; needs the extra ``train``."""

from __future__ import annotations

from .calibration import calibrate
from .conversion import fold_batch_norm, parameter_groups, replace_pointwise
from .export import export_onnx
from .layer import FastPointwiseConv2d
from .sensitivity import Measured, analyse, plot, propose

__all__ = [
    "FastPointwiseConv2d",
    "Measured",
    "analyse",
    "calibrate",
    "export_onnx",
    "fold_batch_norm",
    "parameter_groups",
    "plot",
    "propose",
    "replace_pointwise",
]
