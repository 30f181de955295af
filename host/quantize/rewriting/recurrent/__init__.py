"""LSTM, GRU and RNN, which ONNX Runtime computes in float, spelled out step by step."""

from __future__ import annotations

from .recurrence import RECURRENT
from .unrolled import UNROLLED

__all__ = ["RECURRENT", "UNROLLED"]
