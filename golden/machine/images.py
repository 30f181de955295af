"""Images of memories: the arena before a run, and the tensors that memories hold."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..elements import run_bytes
from ..program.program import Program
from ..program.tensors import SpilledTensor, WrittenTensor
from .tensors import tensor_codes

UInt8 = npt.NDArray[np.uint8]


def new_arena(program: Program) -> UInt8:
    """External memory with the commands and constants of a program, uint8[arena_bytes]; the rest is zero."""
    arena = np.zeros(program.arena_bytes, np.uint8)
    for address, data in program.contents():
        arena[address : address + len(data)] = np.frombuffer(data, np.uint8)
    return arena


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
