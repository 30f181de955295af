"""An engine that the project does not have: sums of products of each lane, on borrowed multipliers.

All that there is of it stands in this file. It borrows two columns of the array, whose weights it wants at times of its
own, later than the array does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from amaranth.hdl import Module, Mux, Signal, signed

from lutterfly.golden.config import Config
from lutterfly.golden.engines import ENGINES, SPECIFICATIONS
from lutterfly.golden.engines.engine import Engine, EngineConfig
from lutterfly.golden.engines.specification import EngineSpecification, Issue, TileWindows, any_steps
from lutterfly.golden.memories import LocalMemory
from lutterfly.hdl.engines import COMPONENTS
from lutterfly.hdl.engines.engine import ACCUMULATOR_BITS, EngineComponent, engine_members
from lutterfly.hdl.engines.multipliers import borrower_members
from lutterfly.hdl.parts.device import MULTIPLIER_LATENCY
from lutterfly.hdl.parts.pipeline import delay
from lutterfly.host.compiler.lower import operations
from lutterfly.host.compiler.lower.lanewise import LanewiseOperation
from lutterfly.host.compiler.operation import Command, Constant, Job, Lowering
from lutterfly.host.graph import MaxPool, Tensor

Int8 = npt.NDArray[np.int8]

WEIGHTED = Engine(10, "WEIGHTED", configuration=EngineConfig)
COLUMNS = 2
#: From a word to the weights of each column.
TIMES = (4, 7)
#: Multiply, add both products, accumulate.
LATENCY = TIMES[-1] + MULTIPLIER_LATENCY + 2


def _totals(windows: TileWindows) -> np.ndarray:
    weights = windows.weights[:, :COLUMNS].astype(np.int64).sum(1)
    return (windows.words * weights).sum(-2).astype(np.int32)


SPECIFICATION = EngineSpecification(
    engine=WEIGHTED,
    notes="Gives the sum of each lane's products with the weights of two columns.",
    results="array.lanes",
    totals=_totals,
    latency=lambda config, command: LATENCY,
    random_window=any_steps,
    issue=Issue(weight_words="steps"),
    borrowed_columns=lambda config: COLUMNS,
)


class Weighted(EngineComponent):
    """Multiply each byte in two columns of the array, one word per cycle, and add up."""

    weight_times = TIMES

    def __init__(self, config: Config):
        self.config = config
        self.lanes = config.array.lanes
        self.latencies = {WEIGHTED: LATENCY}
        super().__init__({**engine_members(config, self.latencies), **borrower_members(COLUMNS, self.lanes)})

    def elaborate(self, platform) -> Module:
        m = Module()
        arrays, sums = self.borrowed_multipliers, []
        for column, time in enumerate(TIMES):
            valid = delay(m, self.step.valid, time, name=f"valid_{column}")
            word = delay(m, self.word, time, name=f"word_{column}")
            for lane in range(self.lanes):
                m.d.comb += arrays.factors[column][lane].eq(Mux(valid, word.word_select(lane, 8).as_signed(), 0))
        step = delay(m, self.step, LATENCY - 1, name="step")
        m.d.comb += self.result.valid.eq(delay(m, step.valid & step.fire, 1, name="fired"))
        for lane in range(self.lanes):
            first = delay(m, arrays.products[0][lane], TIMES[1] - TIMES[0], name=f"first_{lane}")
            both, total = (
                Signal(signed(ACCUMULATOR_BITS), name=f"{name}_{lane}", reset_less=True) for name in ("both", "total")
            )
            m.d.sync += both.eq(first + arrays.products[1][lane])
            with m.If(step.valid):
                m.d.sync += total.eq(Mux(step.clear, 0, total) + both)
            sums.append(total)
        m.d.comb += [result.eq(total) for result, total in zip(self.result.lanes, sums, strict=True)]
        return m


@dataclass(frozen=True, eq=False)
class FirstElement(MaxPool):
    """The first element of windows side by side."""

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """Whatever the weights are."""
        height, width, channels = values[self.input].shape
        rows, columns = self.window.kernel
        windows = values[self.input].reshape(height // rows, rows, width // columns, columns, channels)
        return {self.output: windows[:, 0, :, 0]}


class FirstElementOperation(LanewiseOperation):
    """Reads and writes as a max pooling does; weights of both columns add up to one, and then to nothing."""

    @property
    def constants(self) -> dict[LocalMemory, Constant]:
        """Those of a max pooling, and random weights."""
        array, steps = self.config.array, self.taps.size
        words = np.zeros((steps, array.columns, array.lanes), np.int8)
        words[:, 0] = np.random.default_rng(0).integers(-100, 101, (steps, array.lanes))
        words[:, 1] = -words[:, 0]
        words[0, 1] += 1
        tiles = -(-self.pixel_bytes // array.lanes)
        image = words.tobytes() * tiles
        return {**super().constants, LocalMemory.WEIGHT: Constant(image, (len(image),))}

    def lower(self, job: Job) -> list[Command]:
        """The same commands for another engine, and with weights."""
        own = {"engine": WEIGHTED, "weight": job.addresses[LocalMemory.WEIGHT]}
        return [
            Command.of(command, fields=WEIGHTED.format.kind(**{**command.fields, **own}))
            for command in super().lower(job)
        ]


LOWERING = Lowering({FirstElement: FirstElementOperation}, (WEIGHTED,), reads_border=False)


def add_borrower(monkeypatch: pytest.MonkeyPatch) -> None:
    """The four lines."""
    monkeypatch.setitem(ENGINES, WEIGHTED, WEIGHTED)
    monkeypatch.setitem(SPECIFICATIONS, WEIGHTED, SPECIFICATION)
    monkeypatch.setitem(COMPONENTS, WEIGHTED, Weighted)
    monkeypatch.setattr(operations, "LOWERINGS", (LOWERING, *operations.LOWERINGS))
