"""The outline: what the compiler has decided and commands do not say, for reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from ..units import Queue

#: In place of an index where there is none.
NONE = -1
_MOST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class QueueOutline:
    """What is known of the commands of one queue, of each in its order, END left out.

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
class LayerOutline:
    """What a layer is, and the memory that it needs.

    Attributes
    ----------
    operation : str
        In a few words.
    is_depthwise : bool
        Whether each channel is computed of the same one of its inputs.
    weight_bytes, streamed_weight_bytes : int
        Of its weights as they lie in the weight memory, and of these what is loaded in every inference.
    feature_bytes : int
        Taken in the feature memory while it runs, at most: its own tensors and those that wait for later layers.
    in_parts, spilled : tuple of str
        Tensors that it reads or writes which are not whole in the feature memory while it runs, and those of them that
        go through external memory only because of that: they are neither inputs nor outputs of the accelerator.
    loaded_bytes, stored_bytes : int
        What LOADs and STOREs move for it over the bus in an inference.
    """

    operation: str
    is_depthwise: bool
    weight_bytes: int
    streamed_weight_bytes: int
    feature_bytes: int
    in_parts: tuple[str, ...]
    spilled: tuple[str, ...]
    loaded_bytes: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class Block:
    """Constants that lie together in their memory.

    Attributes
    ----------
    memory : str
        Its name, see :mod:`~lutterfly.golden.memories`.
    address, size_bytes : int
        Where; for what is streamed, the first time that it is loaded.
    layers : tuple of int
        The layers that use it, in order: several share what is equal.
    is_streamed : bool
        Whether it is loaded in every inference.
    tables : bytes
        What it holds, if that is transfer tables.
    """

    memory: str
    address: int
    size_bytes: int
    layers: tuple[int, ...]
    is_streamed: bool
    tables: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Residence:
    """A tensor, or a part of one, in the feature memory.

    Attributes
    ----------
    tensor : str
    address, size_bytes : int
        Where, with its border.
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
class Row:
    """One operation of the network, the host's included.

    Attributes
    ----------
    name, operation : str
        The ONNX node and what it is, in a few words.
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
class CoreOutline:
    """What the compiler has decided for one core.

    Attributes
    ----------
    dma, compute : QueueOutline
        Of the body.
    layers : tuple of LayerOutline
        In order of execution, as the core's predictions.
    blocks : tuple of Block
        All constants: by memory, what stays first, then by address.
    residences : tuple of Residence
        What lies in the feature memory, in the order of the first use.
    """

    dma: QueueOutline
    compute: QueueOutline
    layers: tuple[LayerOutline, ...]
    blocks: tuple[Block, ...]
    residences: tuple[Residence, ...]

    def __getitem__(self, queue: Queue) -> QueueOutline:
        return self.dma if queue is Queue.DMA else self.compute

    def check(self, commands: Mapping[Queue, int], layers: int) -> None:
        """Check it against a core with so many commands in its queues, END left out, and so many layers."""
        if len(self.layers) != layers:
            raise ValueError(f"outline.layers must be {layers}, one for each of the program's, not {len(self.layers)}")
        for queue, own in commands.items():
            outline, name = self[queue], f"outline.{queue.value}"
            for column in fields(outline):
                found = len(getattr(outline, column.name))
                if found != own:
                    raise ValueError(f"{name}.{column.name} must be {own}, one for each command, not {found}")
            _within(f"{name}.layers", outline.layers, NONE, layers)
            _within(f"{name}.waits_for", outline.waits_for, NONE, commands[queue.peer])
            _within(f"{name}: cycles", (*outline.begins, *outline.ends), 0, _MOST)
        for block in self.blocks:
            _within("outline.blocks: layers", block.layers, 0, layers)
            _within("outline.blocks: bytes", (block.address, block.size_bytes), 0, _MOST)
            if block.tables and len(block.tables) != block.size_bytes:
                raise ValueError(f"outline.blocks: tables must be {block.size_bytes} bytes, not {len(block.tables)}")
        for place in self.residences:
            name, dma, compute = f"outline.residences: {place.tensor}", commands[Queue.DMA], commands[Queue.COMPUTE]
            _within(f"{name}: dma", place.dma, 0, dma)
            _within(f"{name}: compute", (*place.written, *place.read), 0, compute)
            if not (*place.dma, *place.written, *place.read):
                raise ValueError(f"{name} must have commands that touch it, and has none")


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
        Of an inference, of one core alone where each has samples of its own; 0 where it was not predicted, because it
        needs too much, or takes ``least_cycles`` at least.
    least_cycles : int
        The steps of its array, where these alone are no less than the cycles of another way; else 0.
    refused : str
        What it needs too much of; else empty.
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
    """What the compiler has decided. A program that no compiler made has an empty one.

    Attributes
    ----------
    cores : tuple of CoreOutline
        As the program's.
    rows : tuple of Row
        In order of execution.
    notes : tuple of str
        What the frontend has to say of the model.
    transfer_functions : int
        Places with a transfer table, what concatenations look up for each of their inputs included.
    spilled_bytes : int
        Of all tensors that go through external memory because the feature memory does not hold them.
    tried : tuple of Tried
        The ways to plan the network among which the compiler has chosen, in the order in which they were tried.
    """

    cores: tuple[CoreOutline, ...] = ()
    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()
    transfer_functions: int = 0
    spilled_bytes: int = 0
    tried: tuple[Tried, ...] = ()

    def check(self, cores: Sequence[tuple[Mapping[Queue, int], int]]) -> None:
        """Check it against a program: for each core the commands of its queues, END left out, and its layers.

        Raises
        ------
        ValueError
            If it says more or less than there is, or names what there is not.
        """
        if self == Outline():
            return
        if len(self.cores) != len(cores):
            raise ValueError(f"outline.cores must be {len(cores)}, as the program's, not {len(self.cores)}")
        for core, (commands, layers) in zip(self.cores, cores, strict=True):
            core.check(commands, layers)
        for row in self.rows:
            _within(f"outline.rows: layers of {row.name}", (len(row.layers),), len(cores), len(cores) + 1)
            for number, (_, layers) in zip(row.layers, cores, strict=True):
                _within(f"outline.rows: layer of {row.name}", (number,), NONE, layers)
            if row.where not in ("accelerator", "host"):
                raise ValueError(f"outline.rows: where of {row.name} must be accelerator or host, not {row.where}")
        for one in self.tried:
            _within("outline.tried: layers", (one.row_layers, one.channel_layers, one.wide_layers), 0, _MOST)
            _within("outline.tried: cycles", (one.predicted_cycles, one.least_cycles), 0, _MOST)


def _within(name: str, values: Iterable[int], first: int, end: int) -> None:
    wrong = [value for value in values if not first <= value < end]
    if wrong:
        raise ValueError(f"{name} must be from {first} to {end - 1}, not {wrong[0]}")


# What the compiler predicts of a layer.


@dataclass(frozen=True, slots=True)
class LayerPrediction:
    """What the compiler predicts of one layer.

    Attributes
    ----------
    name, kind : str
        The ONNX node that the layer comes from, and the kind of the layer.
    commands : tuple of int
        Its commands in the body's compute queue.
    macs : int
        Multiply-accumulates of the layer as the network defines it.
    cycles : int
        Predicted, from the last issue of the layer before to its own last issue.
    array_cycles : int
        Steps that it issues.
    bus_cycles : int
        Beats of its inputs, outputs and constants on the bus, for those that do not stay on the chip.
    bound : str
        ``"bus"`` or ``"array"``, whichever takes longer.
    fold : str
        How its input is folded, for people.
    at_once : int
        Multiply-accumulates that one multiplier's place does in a cycle: 8 for binary values.
    connections, live_connections : int
        For a convolution on the multiplier array: pairs of an input and an output channel, and those with a weight.
    dense_words, model_words, words : int
        Words that all its tiles read for a pixel: if no connection were off, with channels in the model's order, and as
        it is. 1 for other layers.
    dense_cycles : int
        Cycles if no connection were off: the predicted ones, and the steps that are skipped.
    copied_bytes : int
        Bytes that it does nothing but move from one place in the feature memory to another.
    """

    name: str
    kind: str
    commands: tuple[int, ...]
    macs: int
    cycles: int
    array_cycles: int
    bus_cycles: int
    bound: str
    fold: str
    at_once: int = 1
    connections: int = 0
    live_connections: int = 0
    dense_words: int = 1
    model_words: int = 1
    words: int = 1
    dense_cycles: int = 0
    copied_bytes: int = 0

    @property
    def is_sparse(self) -> bool:
        """Whether it skips words, because connections are off."""
        return self.words != self.dense_words

    @property
    def multiplier_cycles(self) -> float:
        """Multiplier cycles that its multiply-accumulates take, without those of skipped words."""
        return self.macs * self.words / self.dense_words / self.at_once
