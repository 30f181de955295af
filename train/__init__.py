"""Training in PyTorch: fast pointwise convolutions (``docs/fpc.md``), binary layers (``docs/binary.md``), and sparse
convolutions (``docs/sparse.md``).

Needs the extra ``train``.
"""

from __future__ import annotations

import importlib.util

from ..synth.tools import missing

if importlib.util.find_spec("torch") is None:
    # This comes before the first import that would fail with only a module's name.
    raise ModuleNotFoundError(missing("lutterfly.train", ["PyTorch"], "train"), name="torch")

from .channels.channels import channel_graph
from .exporting.export import export_onnx
from .layers.binary import BinaryConv2d, BinaryLinear, clip_weights
from .layers.layer import FastPointwiseConv2d
from .layers.sparse import SparseConv2d, replace_convolutions
from .preparing.calibration import calibrate
from .preparing.conversion import parameter_groups, replace_pointwise
from .preparing.folding import Folds, fold_batch_norm, fold_batch_norms
from .schedules.checkpoint import load_checkpoint, save_checkpoint
from .schedules.densify import Densification, Rewiring
from .schedules.sensitivity import MeasuredDensities, analyse, plot, propose

__all__ = [
    "BinaryConv2d",
    "BinaryLinear",
    "Densification",
    "FastPointwiseConv2d",
    "Folds",
    "MeasuredDensities",
    "Rewiring",
    "SparseConv2d",
    "analyse",
    "calibrate",
    "channel_graph",
    "clip_weights",
    "export_onnx",
    "fold_batch_norm",
    "fold_batch_norms",
    "load_checkpoint",
    "parameter_groups",
    "plot",
    "propose",
    "replace_convolutions",
    "replace_pointwise",
    "save_checkpoint",
]
