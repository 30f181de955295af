"""Outcome: what the compiler has decided, for whoever shows it; how it came to that is nobody else's business."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ....golden.config import Config
from ....golden.isa import TABLE_BYTES
from ....golden.memories import LocalMemory, constant_memories
from ....golden.program import LayerPrediction
from ...graph import Graph
from ..data.command import Command
from ..data.plan import Plan
from .memory_map import Block, LayerMemory, constant_blocks, layer_memory
from .stays import Stay, stays_of


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


class Outcome:
    """A finished plan, as those see it who show it.

    Attributes
    ----------
    config : Config
    graph : Graph
        What is executed. It may have other layers than the network: concatenations that cost nothing are none, and a
        max pooling may be two.
    layers : tuple of LayerPrediction
        Of each layer of the graph.
    streamed_bytes : int
        What lies in external memory of constants that are loaded in every inference.
    predicted_cycles : int
    """

    def __init__(self, plan: Plan):
        self._plan = plan
        self.config: Config = plan.config
        self.graph: Graph = plan.graph
        self.layers: tuple[LayerPrediction, ...] = tuple(plan.predictions)
        self.streamed_bytes = len(plan.streamed)
        self.predicted_cycles = plan.predicted_cycles

    def queue(self, name: str) -> list[Command]:
        """The commands of the queue ``"compute"`` or ``"dma"``."""
        return self._plan.queue(name)

    @cached_property
    def layer_memory(self) -> tuple[LayerMemory, ...]:
        """The memory that each layer of the graph needs."""
        return tuple(layer_memory(self._plan))

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """All constants: by memory, what stays first, then by address."""
        return tuple(constant_blocks(self._plan))

    @cached_property
    def constant_memories(self) -> tuple[ConstantMemory, ...]:
        """The memories for constants."""
        return tuple(
            ConstantMemory(
                memory.title,
                self.config.size_bytes(memory),
                tuple(block for block in self.blocks if block.memory is memory),
            )
            for memory in constant_memories(self.config)
        )

    @property
    def transfer_functions(self) -> int:
        """Places with a transfer table, what concatenations look up for each of their inputs included."""
        return sum(layer.transfer_functions for layer in self.graph.layers)

    @property
    def transfer_tables(self) -> int:
        """Tables of the table memory, which transfer functions share where they are equal."""
        return sum(block.size_bytes for block in self.blocks if block.memory is LocalMemory.TABLE) // TABLE_BYTES

    @cached_property
    def stays(self) -> tuple[Stay, ...]:
        """What lies in the feature memory, in the order of the first use."""
        return tuple(stays_of(self._plan))

    @property
    def feature_bytes(self) -> int:
        """Taken in the feature memory where it is fullest."""
        return max(layer.feature_bytes for layer in self.layer_memory)

    @property
    def spilled(self) -> frozenset[str]:
        """Tensors that go through external memory because the feature memory does not hold them."""
        return frozenset(name for layer in self.layer_memory for name in layer.spilled)
