"""Binary values: +1 and -1 as bits, packed along channels, their inner products and convolutions.

``bin(x) = +1 if x >= 0 else -1``, one bit for each, 1 for +1. The channels of a pixel lie side by side, channel 0 in
the lowest bit of the first byte.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..elements import BINARY_BITS, run_bytes
from .planes import Pads, Pair, patches

UInt8 = npt.NDArray[np.uint8]
Int32 = npt.NDArray[np.int32]


def pack(values: npt.NDArray[np.number], *, word_bits: int = 8) -> UInt8:
    """Return the signs of values as packed bits.

    Parameters
    ----------
    values : [..., channels]
        The numbers; zero counts as +1.
    word_bits : int
        A pixel takes whole words of this many bits, a multiple of 8; bits beyond the channels are 0.

    Returns
    -------
    uint8[..., bytes]

    Raises
    ------
    ValueError
        If words are not whole bytes.
    """
    values = np.asarray(values)
    if word_bits < 8 or word_bits % 8:
        raise ValueError(f"word_bits must be a multiple of 8, not {word_bits}")
    channels = values.shape[-1]
    words = -(-channels // word_bits)
    packed = np.zeros((*values.shape[:-1], words * word_bits // 8), np.uint8)
    packed[..., : run_bytes(channels, BINARY_BITS)] = np.packbits(values >= 0, axis=-1, bitorder="little")
    return packed


def signs(codes: npt.NDArray[np.number]) -> npt.NDArray[np.int8]:
    """Return +1 for each value that is not negative, else -1: int8[...]."""
    codes = np.asarray(codes)
    if codes.dtype == np.int8:
        # A code that is shifted right by 7 bits is -1 or 0.
        return codes.view(np.int8) >> np.int8(7) | np.int8(1)
    return np.where(codes >= 0, np.int8(1), np.int8(-1))


def unpack(packed: UInt8, channels: int) -> npt.NDArray[np.int8]:
    """Return the values +1 and -1 of packed bits, int8[..., channels].

    Raises
    ------
    TypeError
        If ``packed`` is not uint8.
    ValueError
        If it has fewer bits than there are channels.
    """
    _require_bytes(packed=packed)
    if 8 * packed.shape[-1] < channels:
        raise ValueError(f"packed must have {channels} bits, not {8 * packed.shape[-1]}")
    bits = np.unpackbits(packed, axis=-1, count=channels, bitorder="little")
    return (2 * bits.astype(np.int8) - 1).astype(np.int8)


def inner_product(x: UInt8, w: UInt8, channels: int) -> Int32:
    """Return the inner product of packed values over the last axis: ``channels - 2 * popcount(x XOR w)``.

    Parameters
    ----------
    x, w : uint8[..., bytes]
        Broadcast against each other; their bits beyond the channels are equal.
    channels : int

    Returns
    -------
    int32[...]
    """
    _require_bytes(x=x, w=w)
    differing = np.bitwise_count(np.bitwise_xor(x, w)).sum(axis=-1, dtype=np.int32)
    return (channels - 2 * differing).astype(np.int32)


def bordered(height: int, width: int, channels: int, pads: Pads, value: int) -> tuple[UInt8, UInt8]:
    """Return a binary map with its padding, so that results that are written to its middle need no padding pass.

    Parameters
    ----------
    height, width, channels : int
        Size of the map.
    pads : (top, left, bottom, right)
    value : int
        Value of the padding, +1 or -1.

    Returns
    -------
    stored, middle : uint8[rows, columns, bytes]
        The whole array, its padding filled, and a view of the map within.

    Raises
    ------
    ValueError
        If the value is neither.
    """
    require_pad_value(value)
    top, left, bottom, right = pads
    of_pixel = pack(np.full(channels, value, np.int8))
    stored = np.tile(of_pixel, (top + height + bottom, left + width + right, 1))
    middle = stored[top : top + height, left : left + width]
    middle[:] = 0
    return stored, middle


def convolve_stored(
    stored: UInt8, weights: UInt8, channels: int, *, stride: Pair = (1, 1), dilation: Pair = (1, 1)
) -> Int32:
    """Convolve a stored map, border included, tap by tap on the packed bytes: no matrix of patches is made.

    Parameters
    ----------
    stored : uint8[rows, columns, bytes]
    weights : uint8[output channels, kernel rows, kernel columns, bytes]
    channels : int
    stride, dilation : (vertical, horizontal)

    Returns
    -------
    int32[output rows, output columns, output channels]

    Raises
    ------
    TypeError
        If an array is not uint8.
    ValueError
        If bytes differ, the kernel is larger than the map, or a size is out of range.
    """
    _require_bytes(stored=stored, weights=weights)
    outputs, kernel_rows, kernel_columns, size = weights.shape
    if stored.shape[2] != size or size < run_bytes(channels, BINARY_BITS):
        raise ValueError(
            f"stored and weights must have the bytes of {channels} channels, not {stored.shape[2]} and {size}"
        )
    # This is a view, as the border is stored already.
    kernel, no_pads = (kernel_rows, kernel_columns), (0, 0, 0, 0)
    seen = patches(stored.view(np.int8), kernel=kernel, stride=stride, dilation=dilation, pads=no_pads, border=0)
    differing = np.zeros((*seen.shape[:2], outputs), np.int32)
    kernels = _as_words(weights)
    for row, column in np.ndindex(kernel_rows, kernel_columns):
        of_tap = _as_words(seen[:, :, row, column].view(np.uint8))
        for output, word in np.ndindex(outputs, kernels.shape[3]):
            differing[..., output] += np.bitwise_count(of_tap[..., word] ^ kernels[output, row, column, word])
    return channels * kernel_rows * kernel_columns - 2 * differing


def convolve_binary(
    values: npt.NDArray[np.number],
    weights: npt.NDArray[np.number],
    *,
    pad_value: int = 1,
    stride: Pair = (1, 1),
    dilation: Pair = (1, 1),
    pads: Pads = (0, 0, 0, 0),
) -> Int32:
    """Convolve the signs of values with those of weights; borders are ``pad_value``.

    Parameters
    ----------
    values : [height, width, channels]
    weights : [output channels, kernel rows, kernel columns, channels]
    pad_value : int
        +1 or -1: a binary map cannot hold 0.
    stride, dilation : (vertical, horizontal)
    pads : (top, left, bottom, right)

    Returns
    -------
    int32[output rows, output columns, output channels]

    Raises
    ------
    ValueError
        If channels differ, the kernel is larger than the map with its border, or the pad value is another one.
    """
    height, width, channels = values.shape
    if weights.shape[-1] != channels:
        raise ValueError(f"values must have the {weights.shape[-1]} channels of weights, not {channels}")
    stored, middle = bordered(height, width, channels, pads, pad_value)
    middle[:] = pack(values)
    return convolve_stored(stored, pack(weights), channels, stride=stride, dilation=dilation)


def fully_connected(values: npt.NDArray[np.number], weights: npt.NDArray[np.number]) -> Int32:
    """Return inner products of signs; the matrix is transposed, and each of its rows packed.

    Parameters
    ----------
    values : [..., inputs]
    weights : [inputs, outputs]

    Returns
    -------
    int32[..., outputs]
    """
    return inner_product(pack(values)[..., None, :], pack(np.ascontiguousarray(weights.T)), values.shape[-1])


def _as_words(packed: UInt8) -> npt.NDArray[np.uint64]:
    """Return words of eight bytes, the last one filled with zeros, so that more bits are counted at a time."""
    size = packed.shape[-1]
    words = np.zeros((*packed.shape[:-1], -(-size // 8) * 8), np.uint8)
    words[..., :size] = packed
    return words.view(np.uint64)


def require_pad_value(value: int) -> None:
    """Refuse a border that is not a binary value."""
    if value not in (1, -1):
        raise ValueError(f"the pad value of a binary map must be +1 or -1, not {value}: it cannot hold another one")


def _require_bytes(**arrays: npt.NDArray[np.generic]) -> None:
    for name, array in arrays.items():
        if array.dtype != np.uint8:
            raise TypeError(f"{name} must be uint8, not {array.dtype}")
