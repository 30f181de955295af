"""The commands of a core, by queue and run."""

from __future__ import annotations

from dataclasses import dataclass

from ..isa import COMMAND_BYTES
from ..units import Queue
from .prediction import LayerPrediction
from .tensors import SpilledTensor, WrittenTensor


@dataclass(frozen=True, slots=True)
class QueueProgram:
    """What one queue executes in a run.

    Attributes
    ----------
    commands : bytes
        Of 64 bytes each, END last.
    address : int
        Where they lie in the arena; a multiple of 64.
    """

    commands: bytes
    address: int

    def __len__(self) -> int:
        """How many commands there are."""
        return len(self.commands) // COMMAND_BYTES


@dataclass(frozen=True, slots=True)
class Queues:
    """What the queues of a core execute in one run.

    Attributes
    ----------
    dma, compute : QueueProgram
    """

    dma: QueueProgram
    compute: QueueProgram

    def __getitem__(self, queue: Queue) -> QueueProgram:
        return self.dma if queue is Queue.DMA else self.compute


@dataclass(frozen=True, slots=True)
class CoreProgram:
    """What one core executes.

    Attributes
    ----------
    prologue, body : Queues
        Run once after loading and after a soft reset; run for every inference.
    layers : tuple of LayerPrediction
        In order of execution.
    written : tuple of WrittenTensor
        What verification finds in its feature memory.
    spilled : tuple of SpilledTensor
        What it finds in the arena.
    """

    prologue: Queues
    body: Queues
    layers: tuple[LayerPrediction, ...]
    written: tuple[WrittenTensor, ...]
    spilled: tuple[SpilledTensor, ...] = ()
