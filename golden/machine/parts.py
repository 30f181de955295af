"""Parts of tensors, which several cores have computed, put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..program.tensors import SpilledTensor, WrittenTensor
from .images import read_tensor, spilled_codes
from .tensors import model_order

Int8 = npt.NDArray[np.int8]
UInt8 = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Part:
    """A tensor, or a part of one.

    Attributes
    ----------
    name : str
    row, channel : int
        Where it begins in the tensor, of whose channels in the order in which they lie.
    codes : int8[height, width, channels]
    order : tuple of int
        Which channel of the model's tensor each channel of the tensor is; empty if the order is the model's.
    """

    name: str
    row: int
    channel: int
    codes: Int8
    order: tuple[int, ...]

    @classmethod
    def written(cls, tensor: WrittenTensor, feature: UInt8) -> Part:
        """What lies in the feature memory uint8[feature_bytes]: a copy."""
        return cls(tensor.name, tensor.row, tensor.channel, read_tensor(tensor, feature), tensor.order)

    @classmethod
    def spilled(cls, tensor: SpilledTensor, data: UInt8) -> Part:
        """What lies in the arena, from its bytes there: a copy."""
        return cls(tensor.name, tensor.row, tensor.channel, spilled_codes(tensor, data.copy()), tensor.order)


def joined(parts: Iterable[Part]) -> dict[str, Int8]:
    """The tensors that the parts are of, by name, with channels in the model's order: int8[height, width, channels].

    Raises
    ------
    ValueError
        If something of a tensor is missing, or there twice.
    """
    of_tensor: dict[str, list[Part]] = {}
    for part in parts:
        of_tensor.setdefault(part.name, []).append(part)
    return {name: model_order(_joined(name, own), own[0].order) for name, own in of_tensor.items()}


def _joined(name: str, parts: list[Part]) -> Int8:
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


def of_shares(parts: Sequence[Sequence[Part]], shares: int) -> list[dict[str, Int8]]:
    """The tensors of each share of the samples, of the parts of each core: one core's, or all put together."""
    if shares > 1:
        return [joined(own) for own in parts]
    return [joined(part for own in parts for part in own)]
