"""Elements of ONNX tensors, and the int8 codes that stand for them."""

from __future__ import annotations

import numpy as np

from .tensor import Int8


def from_codes(codes: Int8, dtype: np.dtype) -> np.ndarray:
    """The int8 or uint8 elements that int8 ``codes`` stand for."""
    return codes if dtype == np.int8 else codes.view(np.uint8) ^ np.uint8(128)


def to_codes(array: np.ndarray) -> Int8:
    """The int8 codes of int8 or uint8 elements."""
    return array if array.dtype == np.int8 else (array ^ np.uint8(128)).view(np.int8)
