"""Commands: what the core is told, before it is encoded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import numpy as np

from ....golden.engines import format_of
from ....golden.isa import Opcode
from ....golden.units import Queue
from .storage import NO_ADDRESSES, Addresses


class _Runs:
    """Addresses of a command, kept as runs of neighbouring ones: a network's commands touch hundreds of millions.

    The first address of each run and its length are stored, int32[2, runs]; they are read and set as int64[...], in
    their order and as often as they are there.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}"

    def __get__(self, command: Command | None, owner: type) -> Addresses:
        if command is None:
            return NO_ADDRESSES
        first, length = getattr(command, self._name)
        before = np.cumsum(length, dtype=np.int64) - length
        return np.repeat(first - before, length) + np.arange(length.sum())

    def __set__(self, command: Command, addresses: Addresses | _Runs) -> None:
        # A dataclass takes what describes the field as its default.
        numbers = NO_ADDRESSES if isinstance(addresses, _Runs) else addresses
        begin = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
        length = np.diff(np.append(begin, len(numbers)))
        setattr(command, self._name, np.array([numbers[begin], length], np.int32))


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
    follows : Command or None
        An earlier command of the other queue that must be complete for another reason than these bytes.
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
    reads: Addresses = field(default=cast(Addresses, _Runs()), repr=False)
    writes: Addresses = field(default=cast(Addresses, _Runs()), repr=False)
    follows: Command | None = field(default=None, repr=False)
    after: bool = False
    waits_for: int | None = None
    signal: int = 0
    begin: int = 0
    end: int = 0

    @property
    def queue(self) -> Queue:
        """Which one executes it."""
        return Queue.COMPUTE if self.opcode is Opcode.COMPUTE else Queue.DMA

    def encode(self) -> bytes:
        """The 64 bytes of the command."""
        return format_of(self.opcode, self.fields.get("engine", 0)).encode(
            **self.fields, after=self.after, wait=self.waits_for is not None, signal=self.signal
        )
