# amaranth: UnusedElaboratable=no
"""From an issued step to its address: list entries of every kind, what is read, and what lies beyond its memory."""

from __future__ import annotations

import os
from typing import Any

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.streams import pack, unpack
from cocotb_tests.support.tiers import SWEPT_PRESETS
from lutterfly.golden import isa
from lutterfly.golden.config import Config
from lutterfly.golden.engines import SPECIFICATIONS, find_engine
from lutterfly.golden.numerics import windows
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.units import ErrorCode, Unit
from lutterfly.hdl.compute.lookup import ISSUE_LATENCY, Lookup, issued_layout
from lutterfly.hdl.engines.engine import step_fields, step_layout
from lutterfly.hdl.parts.isa import ErrorReport

OUTPUTS = ("step", "engine", "engine_valid", "address", "weight", "reads", "problem")


@pytest.mark.regress
@pytest.mark.parametrize("preset", SWEPT_PRESETS)
def test_looks_up(simulate, preset: str) -> None:
    simulate(Lookup(PRESETS[preset]), env={"PRESET": preset})


class Window:
    """A random window, its entries in the list, and what must come of its steps."""

    def __init__(self, config: Config, rng: np.random.Generator, first: int):
        self.config, memory = config, config.memory
        self.engine = find_engine(int(rng.choice([*config.engines])))
        specification = SPECIFICATIONS[self.engine]
        own = {field.name: int(rng.integers(*field.limits, endpoint=True)) for field in self.engine.fields}
        fields = own | specification.random_window(config, rng, 12).fields
        self.command = {"list": first, "skip": 0, **fields}
        steps = self.command["steps"]
        offsets = rng.integers(memory.feature_bytes, size=steps)
        counts = rng.integers(1 << isa.LIST_COUNT_BITS, size=steps) << isa.LIST_COUNT_LSB
        self.entries = (offsets | counts).astype(np.uint32)
        self.entries[0] |= isa.LIST_CLEAR
        self.entries[-1] |= isa.LIST_FIRE
        # Within, at both ends, and where addresses wrap.
        near = memory.feature_bytes - int(offsets[0]) + int(rng.integers(-1, 2))
        self.base = int(rng.choice([0, near, rng.integers(memory.feature_bytes), (1 << isa.LOCAL_BITS) - 1]))
        limit = config.weight_words
        self.weight = int(rng.choice([rng.integers(limit), limit - 1, limit, 2 * limit - 1]))
        self.index = int(rng.integers(1 << 16))
        self.reads = specification.issue.steps_read(self.command, config)

    def issued(self, step: int) -> dict[str, Any]:
        """As it comes from the gate."""
        layouts = step_fields(self.config, self.config.engines)["fields"].members
        encoded = self.engine.format.encode(**{name: self.command[name] for name in self._own()})
        formats = {engine.name.lower(): engine.format for engine in self.config.engines}
        fields = {
            name: {field: formats[name].decode(encoded)[field] for field in layout.members}
            for name, layout in layouts.items()
        }
        common = {"entry": self.command["list"] + step, "base": self.base, "weight": self.weight, "index": self.index}
        return common | {"foreseen": {"engine": int(self.engine)}, "fields": fields}

    def _own(self) -> list[str]:
        return [field.name for field in self.engine.fields]

    def expected(self, step: int, entries: np.ndarray) -> dict[str, Any]:
        """Of a step that is not held back."""
        config, issue = self.config, SPECIFICATIONS[self.engine].issue
        lanes, size = config.array.lanes, config.memory.feature_bytes
        offsets = windows.step_offsets(self.command, entries, feature_bytes=size)
        counts = windows.step_counts(self.command, entries, lanes=lanes)
        address, reads = (self.base + int(offsets[step])) % windows.LOCAL_SPACE, step < self.reads
        bad_address = reads and address >= size
        bad_weight = issue.weight_words is not None and self.weight >= config.weight_words
        problem = {
            "valid": 1,
            "code": int(ErrorCode.ADDRESS_RANGE),
            "unit": int(Unit.FETCH),
            "index": self.index,
            "address": address if bad_address else self.weight,
        }
        keeps = int(counts[step]) if issue.masks_words else lanes
        flags = {"clear": int(step == 0), "fire": int(step == len(self.entries) - 1), "keeps": (1 << keeps) - 1}
        return {
            "step": {"valid": int(not bad_address and not bad_weight), **flags, "fields": self.issued(step)["fields"]},
            "engine": int(self.engine),
            "engine_valid": 1,
            "address": address,
            "weight": self.weight % config.weight_words,
            "reads": int(reads),
            "problem": problem if bad_address or bad_weight else None,
        }


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_gap=[0.0, 0.4])
async def every_step(dut, p_gap: float) -> None:
    config, rng = PRESETS[os.environ["PRESET"]], np.random.default_rng(5)
    chosen, first = [], 0
    while first < config.memory.list_entries - 32:
        chosen.append(Window(config, rng, first))
        first += len(chosen[-1].entries)
    entries = np.concatenate([window.entries for window in chosen])
    await start(dut, {"issue": 0, "issued": 0, "halt": 0, "list_write__en": 0})
    for address, entry in enumerate(entries):
        await cycle(dut, {"list_write__en": 1, "list_write__addr": address, "list_write__data": int(entry)})
    dut.list_write__en.value = 0
    steps = [(window, step) for window in chosen for step in range(len(window.entries))]
    due: list[dict[str, Any] | None] = [None] * ISSUE_LATENCY
    problems = 0
    while steps or any(due):
        inputs: dict[str, int] = {"issue": int(bool(steps) and rng.random() >= p_gap)}
        due.append(None)
        if inputs["issue"]:
            window, step = steps.pop(0)
            inputs["issued"] = pack(window.issued(step), issued_layout(config))
            due[-1] = window.expected(step, entries)
        found = dict(zip(OUTPUTS, await cycle(dut, inputs, *OUTPUTS), strict=True))
        wanted, problem = due.pop(0), unpack(found.pop("problem"), ErrorReport)
        found["step"] = unpack(found["step"], step_layout(config, config.engines))
        if wanted is None:
            assert not found["step"]["valid"]
            assert not found["reads"]
            assert not found["engine_valid"]
            assert not problem["valid"]
            continue
        wrong = wanted.pop("problem")
        assert found == wanted
        assert problem == wrong if wrong else not problem["valid"]
        problems += wrong is not None
    assert problems > 50


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def halts(dut) -> None:
    config = PRESETS[os.environ["PRESET"]]
    await start(dut, {"issue": 1, "issued": 0, "halt": 1, "list_write__en": 0})
    for _ in range(10):
        step, engine_valid, reads, problem = await cycle(dut, {}, "step", "engine_valid", "reads", "problem")
        step = unpack(step, step_layout(config, config.engines))
        assert (step["valid"], engine_valid, reads, problem & 1) == (0, 0, 0, 0)
