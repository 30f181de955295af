"""How a layer's channels depend on those of its inputs, and which of them, and of which pixels, it copies."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from .phase import WHOLE, Phase
from .tensor import Int8


class Place(NamedTuple):
    """Where a tensor lies in another one.

    Attributes
    ----------
    tensor : str
        The other one.
    channel, row : int
        Of that, the first.
    column : int
        Likewise.
    steps : tuple of int
        Rows and columns of that from one of its own to the next.
    """

    tensor: str
    channel: int = 0
    row: int = 0
    column: int = 0
    steps: tuple[int, int] = (1, 1)

    @property
    def phase(self) -> Phase:
        """The rows and columns of the other one."""
        return Phase(self.row, self.column, self.steps)

    def of(self, channel: int, phase: Phase = WHOLE) -> Place:
        """Where a phase of what lies here is, from a channel on."""
        own = self.phase.of(phase)
        return Place(self.tensor, self.channel + channel, own.row, own.column, own.steps)


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
    """Channels of an input that become neighbouring channels of the output.

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
    step : int
        Channels of the input from one to the next.
    read, written : Phase
        The rows and columns of the input, and those of the output that they become.
    """

    source: int
    first: int
    channels: int
    target: int
    table: Int8 | None = None
    step: int = 1
    read: Phase = WHOLE
    written: Phase = WHOLE

    @property
    def sources(self) -> range:
        """The channels of the input."""
        return range(self.first, self.first + self.channels * self.step, self.step)

    @property
    def targets(self) -> range:
        """The channels of the output."""
        return range(self.target, self.target + self.channels)

    @property
    def image(self) -> bytes:
        """The table as it lies in its memory; nothing where there is none."""
        return b"" if self.table is None else self.table.tobytes()
