"""Outcome: what the compiler has decided, as the program says it, for whoever shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ...golden.config import Config
from ...golden.isa import TABLE_BYTES
from ...golden.memories import LocalMemory, constant_memories
from ...golden.program.outline import NONE, Block, CoreOutline, LayerOutline, LayerPrediction, Outline, Residence, Row
from ...golden.program.program import CoreProgram, Program
from ...golden.units import Queue
from .body import BodyCommand, read_queue
from .bus_use import BusUse


@dataclass(frozen=True, slots=True)
class ConstantMemory:
    """One of the memories for constants.

    Attributes
    ----------
    name : str
        What messages call it.
    size_bytes : int
        What it holds.
    blocks : tuple of Block
        What lies in it: what stays first, then by address.
    """

    name: str
    size_bytes: int
    blocks: tuple[Block, ...]

    @property
    def resident_bytes(self) -> int:
        """What stays."""
        return sum(block.size_bytes for block in self.blocks if not block.is_streamed)

    @property
    def streamed_bytes(self) -> int:
        """What is loaded in every inference, each block once."""
        return sum(block.size_bytes for block in self.blocks if block.is_streamed)


class CoreOutcome:
    """What it has decided for one core.

    Parameters
    ----------
    program : CoreProgram
    config : Config
    outline : CoreOutline

    Attributes
    ----------
    program, config, outline
        As given.

    Raises
    ------
    ValueError
        If the program holds a command that there is not.
    """

    def __init__(self, program: CoreProgram, config: Config, outline: CoreOutline):
        self.program, self.config, self.outline = program, config, outline
        self._queues = {queue: read_queue(program.body[queue].commands, outline[queue]) for queue in Queue}

    def queue(self, queue: Queue) -> Sequence[BodyCommand]:
        """The commands of a queue, END left out."""
        return self._queues[queue]

    def touching(self, residence: Residence) -> tuple[list[BodyCommand], list[BodyCommand]]:
        """The commands that bring, write or store what lies in the feature memory, and those that read it there."""
        dma, compute = self._queues[Queue.DMA], self._queues[Queue.COMPUTE]
        moved = [*(dma[index] for index in residence.dma), *(compute[index] for index in residence.written)]
        return moved, [compute[index] for index in residence.read]

    @cached_property
    def constant_memories(self) -> tuple[ConstantMemory, ...]:
        """The memories for constants."""
        return tuple(
            ConstantMemory(
                memory.title,
                self.config.size_bytes(memory),
                tuple(block for block in self.outline.blocks if block.memory == memory.name),
            )
            for memory in constant_memories(self.config)
        )

    @property
    def transfer_tables(self) -> int:
        """Tables of the table memory, which transfer functions share where they are equal."""
        tables = [block for block in self.outline.blocks if block.memory == LocalMemory.TABLE.name]
        return sum(block.size_bytes for block in tables) // TABLE_BYTES

    @property
    def feature_bytes(self) -> int:
        """Taken in the feature memory where it is fullest."""
        return max((layer.feature_bytes for layer in self.outline.layers), default=0)

    @property
    def spilled(self) -> frozenset[str]:
        """Tensors that go through external memory because the feature memory does not hold them."""
        return frozenset(name for layer in self.outline.layers for name in layer.spilled)


class Outcome:
    """What the compiler has decided.

    Parameters
    ----------
    program : Program
    config : Config
        Of the program.

    Attributes
    ----------
    program, config
        As given.
    outline : Outline
        The program's.
    cores : tuple of CoreOutcome
        For each core.

    Raises
    ------
    ValueError
        If the program does not say what was decided, or holds a command that there is not.
    """

    def __init__(self, program: Program, config: Config):
        self.program, self.config, self.outline = program, config, program.outline
        if self.outline == Outline():
            raise ValueError(
                "program must have an outline of what its compiler has decided, and has none; "
                "compile the model with `lutterfly compile`"
            )
        self.cores = tuple(
            CoreOutcome(core, config, outline) for core, outline in zip(program.cores, self.outline.cores, strict=True)
        )

    @property
    def transfer_tables(self) -> int:
        """Tables of the table memory of the core that has most."""
        return max(core.transfer_tables for core in self.cores)

    @property
    def feature_bytes(self) -> int:
        """Taken in the feature memory of any core where it is fullest."""
        return max(core.feature_bytes for core in self.cores)

    @property
    def bus_use(self) -> BusUse:
        """What all cores move over the bus, in the predicted cycles."""
        queues = ({queue: core.queue(queue) for queue in Queue} for core in self.cores)
        return BusUse.of(self.config, queues, self.program.predicted_cycles)

    def places(self, row: Row) -> list[tuple[LayerPrediction, LayerOutline]]:
        """What executes an operation of the network: the layer of each core that has a part of it."""
        return [
            (core.program.layers[number], core.outline.layers[number])
            for core, number in zip(self.cores, row.layers, strict=True)
            if number != NONE
        ]
