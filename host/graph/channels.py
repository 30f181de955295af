"""How a layer's channels depend on those of its inputs, and which of them it copies."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from .tensor import Int8


class Place(NamedTuple):
    """Where a tensor lies in another one.

    Attributes
    ----------
    tensor : str
        The other one.
    channel, row : int
        Of that, the first.
    """

    tensor: str
    channel: int = 0
    row: int = 0

    def beside(self, channels: int) -> Place:
        """What lies so many channels further on."""
        return self._replace(channel=self.channel + channels)


#: Tensors that lie in others.
Views = dict[str, Place]


class ChannelRule(enum.Enum):
    """How the order of a layer's output channels depends on that of its input channels."""

    #: Both are free: every output is computed of all inputs, with weights that can move, see :meth:`Layer.reordered`.
    FREE = enum.auto()
    #: Each output is computed of the same channel of every input: where these move, it moves.
    TIED = enum.auto()
    #: The outputs are the channels of all inputs, one input after the other.
    JOINED = enum.auto()
    #: Neither may move.
    FIXED = enum.auto()


@dataclass(frozen=True, eq=False)
class Selection:
    """Neighbouring channels of an input that become channels of the output.

    Attributes
    ----------
    source : int
        Which of the layer's inputs.
    first, channels : int
        Of the input.
    target : int
        First channel of the output.
    table : int8[256] or None
        What the codes are looked up in.
    """

    source: int
    first: int
    channels: int
    target: int
    table: Int8 | None

    @property
    def image(self) -> bytes:
        """The table as it lies in its memory; nothing where there is none."""
        return b"" if self.table is None else self.table.tobytes()
