"""The plan: what the compiler's passes work on and add to, from a quantised graph to synchronised commands."""
from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...golden.config import Config
from ...golden.isa import FORMATS, Opcode
from ...golden.program import LayerReport
from ..graph import Convolution, Graph, Layer, Pointwise, Window
from .constants import Constants

Addresses = npt.NDArray[np.int64]

NO_ADDRESSES: Addresses = np.empty(0, np.int64)


class CompileError(ValueError):
    """A network that this configuration cannot run; the message names the place and the remedy."""


@dataclass(frozen=True, slots=True)
class Fold:
    """Height folding: a stored row holds several source rows, interleaved pixel by pixel.

    Row r of the stored map holds, as fold h, the source row ``r * step + h * dilation - top``.

    Attributes
    ----------
    rows : int
        Source rows in a stored row.
    step : int
        Source rows from a stored row to the next.
    dilation : int
        Source rows from a fold to the next.
    top : int
        Rows of padding above the source.
    """

    rows: int
    step: int
    dilation: int
    top: int


@dataclass(frozen=True, slots=True)
class Storage:
    """How a tensor lies in the feature memory: rows of pixels of channels, with a border.

    The right border of a row is the left border of the next: ``gap`` pixels lie between two rows.

    Attributes
    ----------
    height, width, channels : int
        As stored: of a folded tensor, stored rows and the channels of all its folds.
    top, left, bottom, right : int
        Border on each side, in pixels.
    gap : int
        Pixels between rows.
    value : int
        int8 code in the border.
    fold : Fold or None
    address : int
        Of the first byte, border included.
    """

    height: int
    width: int
    channels: int
    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0
    gap: int = 0
    value: int = 0
    fold: Fold | None = None
    address: int = 0

    @property
    def row_pitch(self) -> int:
        """Bytes from row to row."""
        return (self.width + self.gap) * self.channels

    @property
    def origin(self) -> int:
        """Address of element (0, 0, 0)."""
        return self.address + self.top * self.row_pitch + self.left * self.channels

    @property
    def size_bytes(self) -> int:
        """From the first byte of the border to its last."""
        rows = self.top + self.height + self.bottom - 1
        return rows * self.row_pitch + (self.left + self.width + self.right) * self.channels

    @property
    def is_dense(self) -> bool:
        """Nothing lies between the rows."""
        return self.gap == 0


@dataclass(eq=False)
class Command:
    """One command of the body, before it is encoded.

    Attributes
    ----------
    opcode : Opcode
    fields : dict
        Without ``after``, ``wait`` and ``signal``.
    layer : int or None
        The layer that it belongs to, if it is a COMPUTE.
    reads, writes : int64[...]
        Bytes of the feature memory whose contents matter to the command, and those that it changes.
    after : bool
    waits_for : int or None
        Index of the latest command of the other queue that must be complete, where no earlier wait says so already.
    signal : int
        Commands of the other queue that wait for this one.
    """

    opcode: Opcode
    fields: dict[str, int]
    layer: int | None = None
    reads: Addresses = field(default_factory=lambda: NO_ADDRESSES, repr=False)
    writes: Addresses = field(default_factory=lambda: NO_ADDRESSES, repr=False)
    after: bool = False
    waits_for: int | None = None
    signal: int = 0

    @property
    def queue(self) -> str:
        """``"compute"`` or ``"dma"``."""
        return "compute" if self.opcode is Opcode.COMPUTE else "dma"

    def encode(self) -> bytes:
        """The 64 bytes of the command."""
        return FORMATS[self.opcode].encode(
            **self.fields, after=self.after, wait=self.waits_for is not None, signal=self.signal
        )


@dataclass
class Plan:
    """A network on its way to a program. Passes fill it from the top to the bottom.

    Attributes
    ----------
    graph, config
        What is compiled, and for which accelerator.
    tables : dict
        Number of the transfer table of each layer that has one, by layer index.
    storages : dict of str to Storage
        Where each tensor lies.
    row_groups : tuple of int
        Output rows of each COMPUTE command of a first layer that begins before its whole input is there; empty where it
        does not.
    ports : dict of str to int
        Address of each input and output in the arena, by tensor.
    constants : Constants
        Contents of the other memories.
    computes : list of list of Command
        The COMPUTE commands of each layer.
    folds : list of str
        How each layer reads its input, for people.
    commands : list of Command
        Of both queues, in an order in which they could run one by one.
    reports : list of LayerReport
    predicted_cycles : int
    """

    graph: Graph
    config: Config
    tables: dict[int, int] = field(default_factory=dict)
    storages: dict[str, Storage] = field(default_factory=dict)
    row_groups: tuple[int, ...] = ()
    ports: dict[str, int] = field(default_factory=dict)
    constants: Constants = None
    computes: list[list[Command]] = field(default_factory=list)
    folds: list[str] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    reports: list[LayerReport] = field(default_factory=list)
    predicted_cycles: int = 0

    def __post_init__(self) -> None:
        if self.constants is None:
            self.constants = Constants(self.config)

    def consumers(self, tensor: str) -> list[tuple[int, Layer]]:
        """The layers that read ``tensor``, with their indices."""
        return [(index, layer) for index, layer in enumerate(self.graph.layers) if tensor in layer.inputs]

    def queue(self, name: str) -> list[Command]:
        """The commands of one queue."""
        return [command for command in self.commands if command.queue == name]


def window_of(layer: Layer) -> Window:
    """The window that a layer reads its input with."""
    return Window((1, 1)) if isinstance(layer, Pointwise) else layer.window


def pad_value(layer: Layer, zero_point: int) -> int:
    """What a layer takes an element in the border for: an int8 code."""
    return zero_point if isinstance(layer, Convolution) else -128
