"""Images of memories: the arena before a run, and the tensors that memories hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..config import Config
from ..elements import BINARY_BITS, run_bytes
from ..numerics.binary import pack, unpack
from ..program.program import Program, SpilledTensor, WrittenTensor

# Tensors in memory: codes of a byte each, or binary values packed along channels.

Int8 = npt.NDArray[np.int8]
UInt8 = npt.NDArray[np.uint8]


def tensor_image(codes: Int8, bits: int) -> UInt8:
    """Encode a tensor's pixels as bytes.

    Parameters
    ----------
    codes : int8[height, width, channels]
        Codes; for a binary tensor +1 and -1.
    bits : int
        Bits of an element.

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
    """Decode a tensor of this shape, int8[height, width, channels], from its bytes, an array of any shape."""
    height, width, channels = shape
    stored = np.ascontiguousarray(image).reshape(height, width, run_bytes(channels, bits))
    return unpack(stored, channels) if bits == BINARY_BITS else stored.view(np.int8)


def new_arena(program: Program, config: Config) -> UInt8:
    """Create a zeroed arena for a program, uint8[arena_bytes]: of the size of that on the chip, else as large as
    needed."""
    return np.zeros(config.arena.on_chip_bytes or program.arena_bytes, np.uint8)


def write_contents(arena: UInt8, contents: Iterable[tuple[int, bytes]]) -> None:
    """Write contents into the arena uint8[arena_bytes], by address."""
    for address, data in contents:
        arena[address : address + len(data)] = np.frombuffer(data, np.uint8)


def read_tensor(tensor: WrittenTensor, feature: UInt8) -> npt.NDArray[np.int8]:
    """Read a tensor from the feature memory uint8[feature_bytes]: a copy, int8[height, width, channels], in stored
    order."""
    height, width, channels = tensor.shape
    y, x, byte = np.ogrid[:height, :width, : run_bytes(channels, tensor.bits)]
    image = feature[tensor.address + y * tensor.row_pitch + x * tensor.pixel_pitch + byte]
    return tensor_codes(image, tensor.shape, tensor.bits)


def spilled_codes(tensor: SpilledTensor, data: UInt8) -> npt.NDArray[np.int8]:
    """Decode bytes of the arena: int8[height, width, channels], in stored order."""
    height, width, channels = tensor.shape
    own = run_bytes(channels, tensor.bits)
    pixels = np.arange(height * width)[:, None] * (tensor.pixel_pitch or own)
    return tensor_codes(data[pixels + np.arange(own)], tensor.shape, tensor.bits)


# Joining parts of tensors that several cores have computed.


@dataclass(frozen=True, eq=False)
class TensorPart:
    """A tensor, or a part of one.

    Attributes
    ----------
    name : str
    row, channel : int
        Its first row and channel in the tensor, with channels in stored order.
    codes : int8[height, width, channels]
    order : tuple of int
        For each channel of the tensor, the channel of the model's tensor; empty if the order is the model's.
    """

    name: str
    row: int
    channel: int
    codes: Int8
    order: tuple[int, ...]

    @classmethod
    def written(cls, tensor: WrittenTensor, feature: UInt8) -> TensorPart:
        """Read a part from the feature memory uint8[feature_bytes]: a copy."""
        return cls(tensor.name, tensor.row, tensor.channel, read_tensor(tensor, feature), tensor.order)

    @classmethod
    def spilled(cls, tensor: SpilledTensor, data: UInt8) -> TensorPart:
        """Read a part from its bytes in the arena: a copy."""
        return cls(tensor.name, tensor.row, tensor.channel, spilled_codes(tensor, data.copy()), tensor.order)


def joined(parts: Iterable[TensorPart]) -> dict[str, Int8]:
    """Join parts into tensors, by name, with channels in the model's order: int8[height, width, channels].

    Raises
    ------
    ValueError
        If an element of a tensor is missing, or there twice.
    """
    of_tensor: dict[str, list[TensorPart]] = {}
    for part in parts:
        of_tensor.setdefault(part.name, []).append(part)
    return {name: model_order(_joined(name, own), own[0].order) for name, own in of_tensor.items()}


def _joined(name: str, parts: list[TensorPart]) -> Int8:
    height = max(part.row + part.codes.shape[0] for part in parts)
    channels = max(part.channel + part.codes.shape[2] for part in parts)
    codes = np.zeros((height, parts[0].codes.shape[1], channels), np.int8)
    count = np.zeros(codes.shape, np.int64)
    for part in parts:
        rows, _, own = part.codes.shape
        place = slice(part.row, part.row + rows), slice(None), slice(part.channel, part.channel + own)
        codes[place] = part.codes
        count[place] += 1
    if (count != 1).any():
        raise ValueError(f"{name}: every element must be in one part, and {np.count_nonzero(count != 1)} are not")
    return codes


def of_shares(parts: Sequence[Sequence[TensorPart]], shares: int) -> list[dict[str, Int8]]:
    """Return the tensors of each share of the samples: each core has a share, or the parts of all cores are joined."""
    if shares > 1:
        return [joined(own) for own in parts]
    return [joined(part for own in parts for part in own)]
