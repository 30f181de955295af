"""Tensors as they lie in memory: codes of a byte each, or binary values packed along channels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..elements import BINARY_BITS, run_bytes
from ..numerics.binary import pack, unpack

Int8 = npt.NDArray[np.int8]
UInt8 = npt.NDArray[np.uint8]


def tensor_image(codes: Int8, bits: int) -> UInt8:
    """The bytes of a tensor's pixels.

    Parameters
    ----------
    codes : int8[height, width, channels]
        Of a binary tensor +1 and -1.
    bits : int
        Of an element.

    Returns
    -------
    uint8[height, width, bytes of the channels]
    """
    return pack(codes) if bits == BINARY_BITS else codes.view(np.uint8)


def model_order(codes: Int8, order: Sequence[int]) -> Int8:
    """Codes int8[height, width, channels] with channels in the model's order; an empty order changes nothing."""
    if not order:
        return codes
    found = np.empty_like(codes)
    found[..., list(order)] = codes
    return found


def tensor_codes(image: UInt8, shape: tuple[int, int, int], bits: int) -> Int8:
    """The codes int8[height, width, channels] of a tensor of this shape, from its bytes, of any shape."""
    height, width, channels = shape
    stored = np.ascontiguousarray(image).reshape(height, width, run_bytes(channels, bits))
    return unpack(stored, channels) if bits == BINARY_BITS else stored.view(np.int8)
