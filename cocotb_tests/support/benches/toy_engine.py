"""An engine that the project does not have: the least byte of each lane.

All that there is of it stands in this file: a specification with its twin, a component, a lowering, and a line in each
of the four tables (:func:`add_toy`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, signed

from lutterfly.golden.config import Config
from lutterfly.golden.engines import ENGINES
from lutterfly.golden.engines.engine import Engine, EngineConfig
from lutterfly.golden.engines.specification import EngineSpecification, RandomWindow, TileWindows
from lutterfly.golden.engines.specifications import SPECIFICATIONS
from lutterfly.hdl.engines import COMPONENTS
from lutterfly.hdl.engines.engine import EngineComponent, engine_members
from lutterfly.host.compiler.data.command import Command
from lutterfly.host.compiler.data.job import Job
from lutterfly.host.compiler.data.operation import Lowering
from lutterfly.host.compiler.lower import operations
from lutterfly.host.compiler.lower.lanewise import LanewiseOperation
from lutterfly.host.graph import MaxPool

MINIMUM = Engine(7, "MINIMUM", configuration=EngineConfig)


def _totals(windows: TileWindows) -> np.ndarray:
    return windows.words.min(axis=-2).astype(np.int32)


SPECIFICATION = EngineSpecification(
    engine=MINIMUM,
    notes="Gives the least byte of each lane.",
    results="array.lanes",
    totals=_totals,
    latency=lambda config, command: 1,
    random_window=lambda config, rng, size: RandomWindow({"steps": int(rng.integers(1, size))}),
)


class Minimum(EngineComponent):
    """Keep the least byte of each lane, one word per cycle, with a latency of one cycle."""

    def __init__(self, config: Config):
        self.config = config
        self.latencies = {MINIMUM: 1}
        super().__init__(engine_members(config))

    def elaborate(self, platform) -> Module:
        m = Module()
        fired = Signal(reset_less=True)
        m.d.sync += fired.eq(self.step.valid & self.step.fire)
        m.d.comb += self.result.valid.eq(fired)
        for lane in range(self.config.array.lanes):
            least, byte = Signal(signed(8), name=f"least_{lane}", reset_less=True), self.word.word_select(lane, 8)
            with m.If(self.step.valid & (self.step.clear | (byte.as_signed() < least))):
                m.d.sync += least.eq(byte)
            m.d.comb += self.result.lanes[lane].eq(least)
        return m


@dataclass(frozen=True, eq=False)
class MinPool(MaxPool):
    """Minimum over a window without borders."""


class MinimumOperation(LanewiseOperation):
    """A min pooling: reads and writes as a max pooling does."""

    def lower(self, job: Job) -> list[Command]:
        """The same commands for another engine."""
        return [
            dataclasses.replace(command, fields=command.fields | {"engine": MINIMUM}) for command in super().lower(job)
        ]


LOWERING = Lowering({MinPool: MinimumOperation}, (MINIMUM,), reads_border=False)


def add_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The four lines."""
    monkeypatch.setitem(ENGINES, MINIMUM, MINIMUM)
    monkeypatch.setitem(SPECIFICATIONS, MINIMUM, SPECIFICATION)
    monkeypatch.setitem(COMPONENTS, MINIMUM, Minimum)
    monkeypatch.setattr(operations, "LOWERINGS", (LOWERING, *operations.LOWERINGS))
