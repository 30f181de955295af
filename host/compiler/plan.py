"""The plan: what the compiler's passes work on and add to, from a quantised graph to synchronised commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...golden.config import Config
from ...golden.engines import format_of
from ...golden.isa import Opcode
from ...golden.memories import LocalMemory
from ...golden.program import LayerPrediction
from ..graph import Graph, Layer
from .storage import NO_ADDRESSES, Addresses, Storage

if TYPE_CHECKING:
    from .constants import Arrival
    from .jobs import Residence
    from .operation import Job, Operation
    from .parts import Cut
    from .placement import Span
    from .segments import Segment


class CompileError(ValueError):
    """A network that this configuration cannot run; the message names the place and the remedy."""


@dataclass(eq=False)
class Command:
    """One command of the body, before it is encoded.

    Attributes
    ----------
    opcode : Opcode
    fields : dict
        Without ``after``, ``wait`` and ``signal``.
    layer : int or None
        The layer that it belongs to: that it computes, that reads what it loads, that has computed what it stores.
    reads, writes : int64[...]
        Bytes of the feature memory whose contents matter to the command, and those that it changes; further numbers
        stand for what is loaded into the memories for constants in every inference, see :mod:`.units`.
    after : bool
    waits_for : int or None
        Index of the latest command of the other queue that must be complete, where no earlier wait says so already.
    signal : int
        Commands of the other queue that wait for this one.
    begin, end : int
        Predicted: the cycle in which a unit gets a command of the DMA queue or in which a COMPUTE issues its first
        step, and that of its completion.
    """

    opcode: Opcode
    fields: dict[str, int]
    layer: int | None = None
    reads: Addresses = field(default_factory=lambda: NO_ADDRESSES, repr=False)
    writes: Addresses = field(default_factory=lambda: NO_ADDRESSES, repr=False)
    after: bool = False
    waits_for: int | None = None
    signal: int = 0
    begin: int = 0
    end: int = 0

    @property
    def queue(self) -> str:
        """``"compute"`` or ``"dma"``."""
        return "compute" if self.opcode is Opcode.COMPUTE else "dma"

    def encode(self) -> bytes:
        """The 64 bytes of the command."""
        return format_of(self.opcode, self.fields.get("engine", 0)).encode(
            **self.fields, after=self.after, wait=self.waits_for is not None, signal=self.signal
        )


@dataclass
class Plan:
    """A network on its way to a program. Passes fill it from the top to the bottom.

    Attributes
    ----------
    graph, config
        What is compiled, and for which accelerator.
    views : dict of str to tuple of (str, int)
        Tensors that are some channels of another one: which one's, and the first of them.
    storages : dict of str to Storage
        How each tensor lies in the feature memory, and where, if it ever is whole there.
    spans : dict of str to tuple of int
        First and last layer, both included, during which a tensor lies whole in the feature memory. Tensors that never
        do are missing, and so are views.
    cuts : dict of int to tuple
        For each layer that reads or writes a tensor which is not whole there: the size of its parts, and the address of
        each buffer for the parts of each such tensor.
    operations : list of Operation
        How each layer is executed.
    jobs : list of Job
        The parts in which the layers are executed, in order.
    residences : list of Residence
        What lies in the feature memory for which of them, in the order of the first.
    segments : dict of LocalMemory to dict of int to list of Segment
        Which tiles of each layer have weights and parameters that stay in their memory, and which are streamed.
    images : dict of LocalMemory to bytes
        What the prologue loads into the memories for constants, from their first unit on.
    arrivals : list of Arrival
        What is loaded into them in every inference.
    streamed : bytes
        Where that comes from; it lies in the arena behind the images.
    external : dict of str to int
        Address in the arena of each tensor that lies there.
    external_bytes : int
        What they take, from the arena's start on.
    computes : list of list of Command
        The COMPUTE commands of each job.
    commands : list of Command
        Of both queues, in an order in which they could run one by one.
    predictions : list of LayerPrediction
    predicted_cycles : int
    """

    graph: Graph
    config: Config
    views: dict[str, tuple[str, int]] = field(default_factory=dict)
    storages: dict[str, Storage] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)
    cuts: dict[int, tuple[Cut, dict[str, tuple[int, ...]]]] = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    residences: list[Residence] = field(default_factory=list)
    segments: dict[LocalMemory, dict[int, list[Segment]]] = field(default_factory=dict)
    images: dict[LocalMemory, bytes] = field(default_factory=dict)
    arrivals: list[Arrival] = field(default_factory=list)
    streamed: bytes = field(default=b"", repr=False)
    external: dict[str, int] = field(default_factory=dict)
    external_bytes: int = 0
    computes: list[list[Command]] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    predictions: list[LayerPrediction] = field(default_factory=list)
    predicted_cycles: int = 0

    def consumers(self, tensor: str) -> list[tuple[int, Layer]]:
        """The layers that read ``tensor``, with their indices."""
        return [(index, layer) for index, layer in enumerate(self.graph.layers) if tensor in layer.inputs]

    def place_of(self, name: str) -> tuple[str, int]:
        """The tensor that is no view in which a tensor lies, and its first channel there."""
        channel = 0
        while name in self.views:
            name, first = self.views[name]
            channel += first
        return name, channel

    def root(self, name: str) -> str:
        """The tensor that is no view in which a tensor lies: itself, if it is none."""
        return self.place_of(name)[0]

    @property
    def roots(self) -> list[str]:
        """Every tensor that lies in the feature memory and is no view: inputs first, then in the order of writing."""
        names = [*self.graph.inputs, *(layer.output for layer in self.graph.layers)]
        return list(dict.fromkeys(map(self.root, names)))

    def readers(self, root: str) -> list[tuple[int, Layer]]:
        """The layers that read a tensor or a view of it, with their indices."""
        return [(index, layer) for index, layer in enumerate(self.graph.layers) if root in map(self.root, layer.inputs)]

    def partial(self, index: int, spans: Mapping[str, Span] | None = None) -> frozenset[str]:
        """The inputs and outputs of a layer that are not whole in the feature memory while it runs."""
        layer, spans = self.graph.layers[index], self.spans if spans is None else spans
        return frozenset(
            name
            for name in (*layer.inputs, layer.output)
            if not (span := spans.get(self.root(name))) or not span[0] <= index <= span[1]
        )

    def queue(self, name: str) -> list[Command]:
        """The commands of one queue."""
        return [command for command in self.commands if command.queue == name]


def check_begins_at_byte(plan: Plan, layer: Layer, name: str, channel: int) -> None:
    """Refuse to read or write channels of a tensor apart from those before them, where they share a byte.

    Raises
    ------
    CompileError
        If the channel begins within a byte.
    """
    bits = plan.graph.tensors[name].bits
    if channel * bits % 8:
        raise CompileError(
            f"{layer.name}: channel {channel} of {name} must begin at a byte, not within one, with {bits} bits an "
            "element; let a multiple of 8 channels lie before it"
        )
