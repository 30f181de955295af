"""Drivers and a monitor for Amaranth streams in cocotb; the rules that they check stand in ``docs/streams.md``.

A word is an integer, or a dictionary of field names where ``shape`` is a structure. ``shape`` is the payload's Amaranth
shape; without one, words are unsigned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import cocotb
import numpy as np
from amaranth.hdl import Shape, ShapeLike
from amaranth.lib import data
from cocotb.handle import HierarchyObject, LogicObject
from cocotb.triggers import FallingEdge, ReadOnly, RisingEdge, Timer

Word = int | Mapping[str, Any]


def pack(word: Word, shape: ShapeLike | None) -> int:
    """The bits of ``word``, as an unsigned integer."""
    if not isinstance(word, Mapping):
        width = 64 if shape is None else Shape.cast(shape).width
        return int(word) & (1 << width) - 1 if int(word) < 0 else int(word)
    if shape is None:
        raise TypeError("shape must be given for words that are dictionaries")
    return int(shape.const(word).as_bits())


def unpack(bits: int, shape: ShapeLike | None) -> Any:
    """The word that :func:`pack` packed."""
    if shape is None:
        return bits
    if isinstance(shape, data.Layout) or (isinstance(shape, type) and issubclass(shape, data.Struct)):
        layout = shape if isinstance(shape, data.Layout) else data.Layout.cast(shape)
        return {name: unpack(bits >> field.offset & (1 << field.width) - 1, field.shape) for name, field in layout}
    plain = Shape.cast(shape)
    return bits - (1 << plain.width) if plain.signed and bits >> plain.width - 1 else bits


def wires(dut: HierarchyObject, name: str) -> tuple[LogicObject, LogicObject, LogicObject | None]:
    """The ports ``valid``, ``ready`` and ``payload`` of a stream; a payload of no bits has no port."""
    return getattr(dut, f"{name}__valid"), getattr(dut, f"{name}__ready"), getattr(dut, f"{name}__payload", None)


async def send(
    clk: LogicObject,
    dut: HierarchyObject,
    name: str,
    words: Iterable[Word],
    rng: np.random.Generator,
    p_stall: float,
    *,
    shape: ShapeLike | None = None,
) -> None:
    """Transfer ``words`` in order; hold ``valid`` low with probability ``p_stall`` in each cycle before one."""
    valid, ready, payload = wires(dut, name)
    for word in words:
        while p_stall and rng.random() < p_stall:
            await RisingEdge(clk)
        if payload is not None:
            payload.value = pack(word, shape)
        valid.value = 1
        await _transfer(clk, valid, ready)
        valid.value = 0


async def receive(
    clk: LogicObject,
    dut: HierarchyObject,
    name: str,
    count: int,
    rng: np.random.Generator,
    p_stall: float,
    *,
    shape: ShapeLike | None = None,
) -> list[Any]:
    """Take ``count`` words; hold ``ready`` low with probability ``p_stall`` in each cycle before one.

    With stalls it also checks that the sender neither waits for ``ready`` nor lets it through to ``valid`` or
    ``payload``.
    """
    valid, ready, payload = wires(dut, name)
    words = []
    for position in range(count):
        while p_stall and (rng.random() < p_stall or (position == 0 and valid.value == 0)):
            await _check_independence(clk, name, valid, ready, payload)
            await RisingEdge(clk)
        ready.value = 1
        words.append(unpack(await _transfer(clk, valid, ready, payload), shape))
        ready.value = 0
    return words


async def _transfer(
    clk: LogicObject, valid: LogicObject, ready: LogicObject, payload: LogicObject | None = None
) -> int:
    while True:
        await ReadOnly()
        done = valid.value == 1 and ready.value == 1
        # A payload of one bit has a value of another type, which knows no to_unsigned().
        word = int(payload.value) if done and payload is not None else 0
        await RisingEdge(clk)
        if done:
            return word


async def _check_independence(
    clk: LogicObject, name: str, valid: LogicObject, ready: LogicObject, payload: LogicObject | None
) -> None:
    """Raise ``ready`` for an instant between two clock edges: nothing may move."""
    await FallingEdge(clk)
    # Monitors look at the falling edge itself.
    await Timer(1, "step")
    before = valid.value, None if payload is None else payload.value
    ready.value = 1
    await Timer(1, "step")
    after = valid.value, None if payload is None else payload.value
    ready.value = 0
    assert before[0] == after[0], f"{name}.valid depends combinationally on {name}.ready"
    assert before[0] == 0 or before[1] == after[1], f"{name}.payload depends combinationally on {name}.ready"


class StreamMonitor:
    """Watch a stream from now on: check its rules in every cycle and keep the words that pass.

    Attributes
    ----------
    words : list
        Words transferred so far.
    cycles : list of int
        The cycle of each, counted from the monitor's start.
    """

    def __init__(
        self,
        clk: LogicObject,
        dut: HierarchyObject,
        name: str,
        *,
        reset: LogicObject | None = None,
        shape: ShapeLike | None = None,
    ):
        self.words: list[Any] = []
        self.cycles: list[int] = []
        self._name = name
        self._shape = shape
        self._reset = reset
        self._wires = wires(dut, name)
        self._task = cocotb.start_soon(self._watch(clk))

    def stop(self) -> None:
        """Watch no longer."""
        self._task.cancel()

    async def _watch(self, clk: LogicObject) -> None:
        valid, ready, payload = self._wires
        waiting = None
        cycle = 0
        while True:
            # The values just before the edge are the ones that the edge sees; drivers move just after it.
            await FallingEdge(clk)
            await ReadOnly()
            word = 0 if payload is None else int(payload.value)
            if self._reset is not None and self._reset.value == 1:
                waiting = None
            elif valid.value == 1:
                assert waiting is None or waiting == word, (
                    f"{self._name}.payload changed from {waiting:#x} to {word:#x} before it was taken"
                )
                waiting = None if ready.value == 1 else word
                if ready.value == 1:
                    self.words.append(unpack(word, self._shape))
                    self.cycles.append(cycle)
            else:
                assert waiting is None, f"{self._name}.valid fell before the word was taken"
            cycle += 1
