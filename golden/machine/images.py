"""Images of memories: the arena before a run, and the tensors that memories hold."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ..config import Config
from ..elements import run_bytes
from ..program.program import Program
from ..program.tensors import SpilledTensor, WrittenTensor
from .tensors import tensor_codes

UInt8 = npt.NDArray[np.uint8]


def new_arena(program: Program, config: Config) -> UInt8:
    """An arena for a program, uint8[arena_bytes], all zero: the one on the chip, or as large as it needs to be."""
    return np.zeros(config.arena.on_chip_bytes or program.arena_bytes, np.uint8)


def write_contents(arena: UInt8, contents: Iterable[tuple[int, bytes]]) -> None:
    """Put what must lie there into the arena uint8[arena_bytes], by address."""
    for address, data in contents:
        arena[address : address + len(data)] = np.frombuffer(data, np.uint8)


def read_tensor(tensor: WrittenTensor, feature: UInt8) -> npt.NDArray[np.int8]:
    """What lies in the feature memory uint8[feature_bytes]: a copy, int8[height, width, channels], as it lies there."""
    height, width, channels = tensor.shape
    y, x, byte = np.ogrid[:height, :width, : run_bytes(channels, tensor.bits)]
    image = feature[tensor.address + y * tensor.row_pitch + x * tensor.pixel_pitch + byte]
    return tensor_codes(image, tensor.shape, tensor.bits)


def spilled_codes(tensor: SpilledTensor, data: UInt8) -> npt.NDArray[np.int8]:
    """The codes of these bytes of the arena: int8[height, width, channels] in the order there."""
    height, width, channels = tensor.shape
    own = run_bytes(channels, tensor.bits)
    pixels = np.arange(height * width)[:, None] * (tensor.pixel_pitch or own)
    return tensor_codes(data[pixels + np.arange(own)], tensor.shape, tensor.bits)
