"""An engine that the project does not have: the least byte of each lane, with epilogues of its own.

All that there is of it stands in this file: a specification with its twin, a component, a lowering, and a line in each
of the four tables (:func:`add_toy`). Its commands choose between the requantiser, addends of its own for the
requantiser, and a whole epilogue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from lutterfly.golden.config import Config
from lutterfly.golden.engines import ENGINES, SPECIFICATIONS
from lutterfly.golden.engines.engine import Engine, EngineConfig
from lutterfly.golden.engines.specification import (
    REQUANTISE,
    EngineSpecification,
    Epilogue,
    RandomWindow,
    TileWindows,
    clamp_of,
)
from lutterfly.golden.isa import place_fields
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.numerics.requant import requantise
from lutterfly.hdl.engines import COMPONENTS
from lutterfly.hdl.engines.engine import (
    ACCUMULATOR_BITS,
    AddendsComponent,
    EngineComponent,
    WholeEpilogueComponent,
    addend_of,
    addends_layout,
    codes_layout,
    engine_members,
    epilogue_settings_layout,
    values_layout,
)
from lutterfly.hdl.parts.pipeline import delay
from lutterfly.host.compiler.lower import operations
from lutterfly.host.compiler.lower.lanewise import LanewiseOperation
from lutterfly.host.compiler.operation import Command, Constant, Job, Lowering
from lutterfly.host.graph import MaxPool, Tensor

Int8 = npt.NDArray[np.int8]

FIELDS = place_fields(
    ("negates", 1, "1: the least byte is subtracted from the bias."),
    ("flips", 1, "1: bits of the bytes are flipped, all lanes at a time."),
    ("mask", 8, "Those that are flipped."),
)
MINIMUM = Engine(9, "MINIMUM", configuration=EngineConfig, fields=FIELDS)


def _totals(windows: TileWindows) -> np.ndarray:
    return windows.words.min(axis=-2).astype(np.int32)


def _negate(totals: np.ndarray, parameters: np.ndarray, command: dict[str, int]) -> np.ndarray:
    return requantise(-totals, parameters, *clamp_of(command))


def _flip(totals: np.ndarray, biases: np.ndarray, command: dict[str, int]) -> np.ndarray:
    """The biases count as well: their low byte, bit by bit."""
    return (totals ^ biases ^ command["mask"]).astype(np.int8)


NEGATE = Epilogue(name="negate", codes=_negate, chosen=lambda command: command["negates"], addends_latency=1)
FLIP = Epilogue(name="flip", codes=_flip, chosen=lambda command: command["flips"], is_whole=True, fields=("mask",))


def _random_window(config: Config, rng: np.random.Generator, size: int) -> RandomWindow:
    negates, flips = (int(bit) for bit in rng.integers(2, size=2))
    # Where a command chooses both, it is the first one that counts.
    is_whole = flips and not negates
    fields = {"negates": negates, "flips": flips, "mask": int(rng.integers(256))}
    return RandomWindow({"steps": int(rng.integers(1, size)), **fields, **({"table_enable": 0} if is_whole else {})})


SPECIFICATION = EngineSpecification(
    engine=MINIMUM,
    notes="Gives the least byte of each lane.",
    results="array.lanes",
    totals=_totals,
    latency=lambda config, command: 1,
    random_window=_random_window,
    epilogues=(NEGATE, FLIP, REQUANTISE),
)


class Negate(AddendsComponent):
    """Give the negative accumulator and the bias."""

    epilogue: ClassVar = NEGATE

    def __init__(self, config: Config):
        self.lanes = config.array.requant_lanes
        words = data.ArrayLayout(signed(ACCUMULATOR_BITS), self.lanes)
        super().__init__(
            {
                "settings": In(epilogue_settings_layout(MINIMUM)),
                "accumulators": In(words),
                "biases": In(words),
                "addends": Out(addends_layout(config)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        for lane in range(self.lanes):
            negative = Signal(signed(ACCUMULATOR_BITS), name=f"negative_{lane}", reset_less=True)
            m.d.sync += negative.eq(-self.accumulators[lane])
            bias = delay(m, self.biases[lane], 1, name=f"bias_{lane}")
            m.d.comb += [self.addends[lane][0].eq(addend_of(negative)), self.addends[lane][1].eq(addend_of(bias))]
        return m


class Flip(WholeEpilogueComponent):
    """Flip the bits of a mask, and those that the biases have."""

    epilogue: ClassVar = FLIP
    latency: ClassVar = 1

    def __init__(self, config: Config):
        self.lanes = config.array.lanes
        super().__init__(
            {
                "settings": In(epilogue_settings_layout(MINIMUM)),
                "values": In(values_layout(self.lanes)),
                "biases": In(values_layout(self.lanes)),
                "codes": Out(codes_layout(self.lanes)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        for lane in range(self.lanes):
            code = Signal(8, name=f"code_{lane}", reset_less=True)
            m.d.sync += code.eq(self.values[lane] ^ self.biases[lane] ^ self.settings.fields.minimum.mask)
            m.d.comb += self.codes[lane].eq(code)
        return m


class Minimum(EngineComponent):
    """Keep the least byte of each lane, one word per cycle, with a latency of one cycle."""

    epilogues: ClassVar = (Negate, Flip)
    is_narrow: ClassVar = True

    def __init__(self, config: Config):
        self.config = config
        self.latencies = {MINIMUM: 1}
        super().__init__(engine_members(config, self.latencies))

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
    """Minimum over windows side by side, with all bits of the result flipped."""

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """Flipped, x is -1 - x."""
        height, width, channels = values[self.input].shape
        rows, columns = self.window.kernel
        windows = values[self.input].reshape(height // rows, rows, width // columns, columns, channels)
        return {self.output: -1 - windows.min((1, 3))}


class MinimumOperation(LanewiseOperation):
    """A min pooling: reads and writes as a max pooling does."""

    #: The whole epilogue of a MinPool flips all bits.
    own: ClassVar = {"engine": MINIMUM, "flips": 1, "mask": 0xFF}

    @property
    def constants(self) -> dict[LocalMemory, Constant]:
        """Those of a max pooling, but for biases of zero."""
        return {**super().constants, LocalMemory.PARAMETER: Constant(bytes(self.config.parameter_word_bytes))}

    def lower(self, job: Job) -> list[Command]:
        """The same commands for another engine."""
        kind = MINIMUM.format.kind
        return [Command.of(one, fields=kind(**{**one.fields, **self.own})) for one in super().lower(job)]


LOWERING = Lowering({MinPool: MinimumOperation}, (MINIMUM,), reads_border=False)


def add_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The four lines."""
    monkeypatch.setitem(ENGINES, MINIMUM, MINIMUM)
    monkeypatch.setitem(SPECIFICATIONS, MINIMUM, SPECIFICATION)
    monkeypatch.setitem(COMPONENTS, MINIMUM, Minimum)
    monkeypatch.setattr(operations, "LOWERINGS", (LOWERING, *operations.LOWERINGS))
