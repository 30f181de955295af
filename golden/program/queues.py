"""The commands of the queues in one run. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Queues:
    """The two command streams of one run.

    Attributes
    ----------
    dma, compute : bytes
        Commands of 64 bytes, END last.
    dma_address, compute_address : int
        Where they lie in the arena; multiples of 64.
    """

    dma: bytes
    compute: bytes
    dma_address: int
    compute_address: int
