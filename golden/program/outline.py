"""The outline: what the compiler has decided and commands do not tell, as reports read it and a program file holds it.

A program that no compiler made has an empty one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..isa import TABLE_BYTES
from ..memories import LocalMemory
from ..units import Queue

#: This stands in place of an index where there is none.
NONE = -1


@dataclass(frozen=True, slots=True)
class LayerOutline:
    """A layer of a core as it is executed: its work, the cycles that the compiler predicts, and its memory.

    Attributes
    ----------
    name, kind : str
        The ONNX node that the layer comes from, and the kind of the layer.
    operation : str
        The layer in a few words.
    is_depthwise : bool
        Whether each channel is computed from the same channel of the inputs.
    commands : tuple of int
        Its commands in the body's compute queue.
    macs : int
        Multiply-accumulates of the layer as the network defines it.
    cycles : int
        The predicted cycles, from the last issue of the layer before to its own last issue.
    array_cycles : int
        The steps that it issues.
    bus_cycles : int
        Beats on the bus, for those of its inputs, outputs and constants that do not stay on the chip.
    bound : str
        ``"bus"`` or ``"array"``, whichever takes longer.
    fold : str
        How its input is folded, for people.
    at_once : int
        Multiply-accumulates in the place of one multiplier in a cycle: 8 for binary values.
    connections, live_connections : int
        For a convolution on the multiplier array: pairs of an input and an output channel, and those with a weight.
    dense_words, model_words, words : int
        Words that all its tiles read for a pixel: if no connection were off, with channels in the model's order, and as
        it is. They are 1 for other layers.
    dense_cycles : int
        The cycles if no connection were off: the predicted ones, and the steps that are skipped.
    copied_bytes : int
        Bytes that it does nothing but move from one place in the feature memory to another.
    loaded_bytes, stored_bytes : int
        Bytes that LOADs and STOREs move for it over the bus in an inference.
    weight_bytes, streamed_weight_bytes : int
        Bytes of its weights in the weight memory, and those of them that are loaded in every inference.
    feature_bytes : int
        The most bytes in use in the feature memory while it runs: its own tensors and those that later layers read.
    in_parts, spilled : tuple of str
        Tensors that it reads or writes which are not whole in the feature memory while it runs, and those of them that
        go through external memory only because of that: they are neither inputs nor outputs of the accelerator.
    """

    name: str
    kind: str
    operation: str
    is_depthwise: bool
    commands: tuple[int, ...]
    macs: int
    cycles: int
    array_cycles: int
    bus_cycles: int
    bound: str
    fold: str
    at_once: int
    connections: int
    live_connections: int
    dense_words: int
    model_words: int
    words: int
    dense_cycles: int
    copied_bytes: int
    loaded_bytes: int
    stored_bytes: int
    weight_bytes: int
    streamed_weight_bytes: int
    feature_bytes: int
    in_parts: tuple[str, ...]
    spilled: tuple[str, ...]

    @property
    def is_sparse(self) -> bool:
        """Whether it skips words, because connections are off."""
        return self.words != self.dense_words

    @property
    def moved_bytes(self) -> int:
        """Bytes that it moves over the bus in an inference."""
        return self.loaded_bytes + self.stored_bytes

    @property
    def multiplier_cycles(self) -> float:
        """Multiplier cycles that its multiply-accumulates take, without those of skipped words."""
        return self.macs * self.words / self.dense_words / self.at_once


@dataclass(frozen=True, slots=True)
class QueueOutline:
    """The commands of one queue of a body, in their order, END left out.

    Attributes
    ----------
    layers : tuple of int
        The layer that the command belongs to; ``NONE`` if it belongs to none.
    waits_for : tuple of int
        Index of the latest command of the other queue that must be complete, where no earlier wait says so already;
        else ``NONE``.
    begins, ends : tuple of int
        Predicted cycles, from the start of the run.
    """

    layers: tuple[int, ...] = ()
    waits_for: tuple[int, ...] = ()
    begins: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """Constants that lie together in their memory.

    Attributes
    ----------
    memory : str
        Its name, see :mod:`~lutterfly.golden.memories`.
    address, size_bytes : int
        Their place; if they are streamed, the place where they are loaded first.
    layers : tuple of int
        The layers that use them, in order: several layers share equal constants.
    is_streamed : bool
        Whether they are loaded in every inference.
    tables : bytes
        The transfer tables; empty for other constants.
    """

    memory: str
    address: int
    size_bytes: int
    layers: tuple[int, ...]
    is_streamed: bool
    tables: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class PlacedTensor:
    """A tensor, or a part of one, in the feature memory.

    Attributes
    ----------
    tensor : str
    address, size_bytes : int
        Its place, border included.
    is_whole : bool
        Whether it is the whole tensor.
    dma, written : tuple of int
        Commands of the DMA queue that bring or store it, and of the compute queue that write it: it must be there until
        they are complete.
    read : tuple of int
        Commands of the compute queue that read it: it must be there until they have issued their last step.
    """

    tensor: str
    address: int
    size_bytes: int
    is_whole: bool
    dma: tuple[int, ...]
    written: tuple[int, ...]
    read: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CoreOutline:
    """The commands and the memories of one core.

    Attributes
    ----------
    dma, compute : QueueOutline
        The queues of the body.
    blocks : tuple of Block
        All constants: by memory, resident ones first, then by address.
    placed : tuple of PlacedTensor
        The contents of the feature memory, in the order of the first use.
    """

    dma: QueueOutline = QueueOutline()
    compute: QueueOutline = QueueOutline()
    blocks: tuple[Block, ...] = ()
    placed: tuple[PlacedTensor, ...] = ()

    def __getitem__(self, queue: Queue) -> QueueOutline:
        return self.dma if queue is Queue.DMA else self.compute

    def blocks_in(self, memory: LocalMemory) -> tuple[Block, ...]:
        """The constants in a memory: resident ones first, then by address."""
        return tuple(block for block in self.blocks if block.memory == memory.name)

    def resident_bytes(self, memory: LocalMemory) -> int:
        """Bytes of a memory that keep their constants from inference to inference."""
        return sum(block.size_bytes for block in self.blocks_in(memory) if not block.is_streamed)

    def streamed_bytes(self, memory: LocalMemory) -> int:
        """Bytes that are loaded into a memory in every inference, each block once."""
        return sum(block.size_bytes for block in self.blocks_in(memory) if block.is_streamed)

    @property
    def transfer_tables(self) -> int:
        """Tables of the table memory, which transfer functions share where they are equal."""
        return sum(block.size_bytes for block in self.blocks_in(LocalMemory.TABLE)) // TABLE_BYTES


@dataclass(frozen=True, slots=True)
class Row:
    """One operation of the network, the host's included.

    Attributes
    ----------
    name, operation : str
        The ONNX node, and the operation in a few words.
    where : str
        ``"accelerator"`` or ``"host"``.
    input_shape, output_shape : tuple of int
        (height, width, channels); empty on the host.
    layers : tuple of int
        The layer of each core that executes it; ``NONE`` on the host, in place already, or if the core has no part.
    """

    name: str
    operation: str
    where: str
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    layers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tried:
    """A way to plan the network that the compiler has tried.

    Attributes
    ----------
    is_permuted : bool
        Whether its channels are in another order than the model's.
    row_layers, channel_layers : int
        Layers of which each core computes some rows, and some channels; one core computes the others.
    wide_layers : int
        Layers whose windows compute several pixels.
    predicted_cycles : int
        The cycles of an inference, of one core alone where each has samples of its own; 0 where they were not
        predicted, because the plan needs too much, or takes ``least_cycles`` at least.
    least_cycles : int
        The steps of its array, where these alone are no less than the cycles of another way; else 0.
    refused : str
        The reason why it does not fit; else empty.
    is_taken : bool
        Whether the program is this one.
    """

    is_permuted: bool
    row_layers: int
    channel_layers: int
    wide_layers: int
    predicted_cycles: int
    least_cycles: int = 0
    refused: str = ""
    is_taken: bool = False


@dataclass(frozen=True, slots=True)
class Outline:
    """The network as a whole.

    Attributes
    ----------
    rows : tuple of Row
        Its operations, in order of execution.
    notes : tuple of str
        Remarks of the frontend on the model.
    transfer_functions : int
        Places with a transfer table, including those that concatenations look up for each of their inputs.
    spilled_bytes : int
        Bytes of all tensors that go through external memory because the feature memory does not hold them.
    tried : tuple of Tried
        The ways to plan the network among which the compiler has chosen, in the order in which they were tried.
    """

    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()
    transfer_functions: int = 0
    spilled_bytes: int = 0
    tried: tuple[Tried, ...] = ()
