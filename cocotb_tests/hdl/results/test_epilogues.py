# amaranth: UnusedElaboratable=no
"""From groups to codes against the twins of all epilogues, chosen anew for each group; and the place beside them."""

from __future__ import annotations

import os
from typing import Any

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.streams import pack
from cocotb_tests.support.networks.butterflies import FPC_CONFIGS
from lutterfly.golden.config import Config
from lutterfly.golden.engines import ADD, FPC, MAC, SPECIFICATIONS
from lutterfly.golden.engines.add import ENTRIES, ENTRY_BITS
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.numerics.addition import add_words
from lutterfly.golden.numerics.requant import pack_parameters
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.transfer.tables import apply_table
from lutterfly.hdl.engines import COMPONENTS
from lutterfly.hdl.engines.engine import epilogue_flag
from lutterfly.hdl.results.epilogues import Epilogues, epilogues_latency
from lutterfly.hdl.results.group_walk import GroupTarget, settings_layout

CONFIGS: dict[str, Config] = {"tiny": PRESETS["tiny"], "whole": FPC_CONFIGS["bottom-up"]}


def epilogues(config: Config) -> Epilogues:
    kinds = dict.fromkeys(COMPONENTS[code] for code in config.engines)
    return Epilogues(config, [epilogue for kind in kinds for epilogue in kind.epilogues])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CONFIGS)
def test_matches_golden(simulate, name: str) -> None:
    simulate(epilogues(CONFIGS[name]), env={"CONFIG": name})


def test_an_epilogue_must_have_a_component() -> None:
    with pytest.raises(ValueError, match="ADD: the epilogue sum must have a component"):
        Epilogues(PRESETS["tiny"], [])


class Groups:
    """Random groups, what goes in for each and which codes must come."""

    def __init__(self, config: Config, rng: np.random.Generator):
        self.config, self.rng, self.lanes = config, rng, config.array.requant_lanes
        self.tables = rng.integers(-128, 128, (config.memory.tables, 256), dtype=np.int8)
        limit = 1 << ENTRY_BITS - 1
        self.entries = rng.integers(-limit, limit, (config.engines[ADD].tables, 2, ENTRIES // 2))

    def draw(self) -> tuple[dict[str, int], str, bytes]:
        """Inputs, the name of the output that has the codes, and these."""
        rng, engines = self.rng, [engine for engine in (MAC, ADD, FPC) if engine in self.config.engines]
        engine = engines[int(rng.integers(len(engines)))]
        accumulators = rng.integers(-(1 << 20), 1 << 20, self.lanes).astype(np.int32)
        scales = np.exp2(rng.uniform(-20, -8, self.lanes) if engine != ADD else np.full(self.lanes, -24.0))
        parameters = pack_parameters(rng.integers(-(1 << 19), 1 << 19, self.lanes, dtype=np.int32), np.float32(scales))
        values = rng.integers(-(1 << 15), 1 << 15, self.config.array.lanes).astype(np.int16)
        command: dict[str, Any] = {"zero_point": int(rng.integers(-128, 128)), "direct": 1}
        command |= {"low": int(rng.integers(-128, -60)), "high": int(rng.integers(60, 128))}
        command |= {"shift": int(rng.integers(8)), "add_table": int(rng.integers(len(self.entries)))}
        command |= {"table": int(rng.integers(len(self.tables))), "table_enable": int(rng.integers(2))}
        specification = SPECIFICATIONS[engine]
        epilogue = specification.epilogue_of(command)
        totals: np.ndarray = accumulators
        if engine == ADD:
            operands = accumulators.view(np.int8).reshape(self.lanes, 4)[:, :2].T
            totals = add_words(operands, self.entries[command["add_table"]])
        given: np.ndarray = parameters
        if epilogue.is_whole:
            totals, given = values.astype(np.int32), parameters.view(np.int16)[: len(values)]
        codes = epilogue.codes(totals, given, command)
        if command["table_enable"] and not epilogue.is_whole:
            codes = apply_table(codes, self.tables[command["table"]])
        inputs = {"settings": pack(self._settings(command, specification, epilogue), settings_layout(self.config))}
        arrays = {"accumulators": accumulators, "parameters": parameters}
        arrays |= {"values": values} if FPC in self.config.engines else {}
        inputs |= {name: int.from_bytes(array.tobytes(), "little") for name, array in arrays.items()}
        return inputs, "whole_codes" if epilogue.is_whole else "codes", codes.tobytes()

    def _settings(self, command: dict[str, Any], specification: Any, epilogue: Any) -> dict[str, Any]:
        fields = {"add": {"add_table": command["add_table"]}}
        fields |= {"fpc": {"shift": command["shift"]}} if FPC in self.config.engines else {}
        flags = {epilogue_flag(specification, epilogue): 1} if epilogue.has_hardware else {}
        common = {name: command[name] for name in ("zero_point", "low", "high", "table_enable", "table")}
        return {**common, **flags, "fields": fields}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def every_epilogue(dut) -> None:
    config, rng = CONFIGS[os.environ["CONFIG"]], np.random.default_rng(6)
    groups, latency = Groups(config, rng), epilogues_latency(config)
    writes = {LocalMemory.TABLE: groups.tables, ADD.memory: groups.entries}
    names = {Epilogues.write_name(code): values.reshape(-1) for code, values in writes.items()}
    await start(dut, {f"{name}__en": 0 for name in names} | {"settings": 0, "place": 0})
    for name, values in names.items():
        mask = (1 << len(getattr(dut, f"{name}__data"))) - 1
        for address, value in enumerate(values):
            inputs = {f"{name}__en": 1, f"{name}__addr": address, f"{name}__data": int(value) & mask}
            await cycle(dut, inputs)
        getattr(dut, f"{name}__en").value = 0
    expected, found = [], []
    outputs = ["finished_place", "codes", *(["whole_codes"] if FPC in config.engines else [])]
    for _ in range(1500):
        inputs, name, codes = groups.draw()
        inputs["place"] = int(rng.integers(1 << 60)) & (1 << GroupTarget.as_shape().size) - 1
        expected.append((inputs["place"], name, codes))
        found.append(dict(zip(outputs, await cycle(dut, inputs, *outputs), strict=True)))
    assert len({name for _, name, _ in expected}) == len(outputs) - 1
    for now, (place, name, codes) in enumerate(expected[:-latency]):
        assert found[now + latency]["finished_place"] == place
        assert found[now + latency][name].to_bytes(len(codes), "little") == codes, now
