"""The simulator and its AXI memory, around a core that only copies."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

from cocotb_tests.support.tiers import sweep
from cocotb_tests.support.toys.toy_components import BEATS, Copier
from lutterfly.golden import pins, registers
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ArrayConfig, AxiConfig
from lutterfly.golden.engines import DEPTHWISE, MAC, MAXIMUM, EngineConfigs
from lutterfly.golden.engines.depthwise import DepthwiseConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.registers import REGISTERS
from lutterfly.hdl.parts.pipeline import ASSERTED
from lutterfly.hdl.parts.verilog import to_verilog
from lutterfly.hdl.top_ip import TopIp
from lutterfly.host.simulation import build
from lutterfly.host.simulation.simulator import EventKind, Fault, MemorySettings, SimulationError, Simulator, StopReason

BASE, SIZE = 0x4000_0000, 1 << 20
SOURCE, TARGET = 0x0, 0x8000


@functools.cache
def copier_library(config: Config) -> Path:
    text = to_verilog(TopIp(Copier(config), trace=True), platform=ASSERTED, name=pins.MODULE)
    return build.library_of(text, config)


def start(simulator: Simulator, *, bursts: int, source: int = SOURCE, target: int = TARGET) -> None:
    settings = {
        "INTERRUPT": 1,
        "EXTERNAL_BASE": BASE,
        "DMA_PROGRAM": source,
        "DMA_COMMANDS": bursts,
        "COMPUTE_PROGRAM": target,
        "INTERRUPT_ENABLE": 1,
        "CONTROL": registers.CONTROL_START,
    }
    for name, value in settings.items():
        simulator.write_register(REGISTERS[name].address, value)


CONFIGS = {
    "tiny": PRESETS["tiny"],
    # The widest bus on a small memory, which elaborates quickly.
    "wide": Config(
        ArrayConfig(lanes=16, columns=1, requant_lanes=1),
        PRESETS["tiny"].memory,
        AxiConfig(data_bits=128),
        EngineConfigs.of(MAC, MAXIMUM, DEPTHWISE, DEPTHWISE=DepthwiseConfig(taps=1)),
    ),
}


@pytest.fixture(params=sweep(CONFIGS, kept=["tiny"]))
def config(request: pytest.FixtureRequest) -> Config:
    return CONFIGS[request.param]


@pytest.fixture
def simulator(config: Config) -> Simulator:
    simulator = Simulator(copier_library(config), base=BASE, size=SIZE)
    simulator.memory[:] = np.random.default_rng(1).integers(0, 256, SIZE, np.uint8)
    return simulator


@pytest.mark.regress
def test_registers(simulator: Simulator, config: Config) -> None:
    assert simulator.read_register(REGISTERS["ID"].address) == registers.ID
    assert simulator.read_register(REGISTERS["CONFIG_HASH"].address) == config.hash
    simulator.write_register(REGISTERS["EXTERNAL_BASE"].address, 0x1234_5000)
    assert simulator.read_register(REGISTERS["EXTERNAL_BASE"].address) == 0x1234_5000
    with pytest.raises(SimulationError, match=r"^the core refuses the access to register 0xfc$"):
        simulator.read_register(0xFC)


@pytest.mark.regress
def test_several_simulators_at_a_time(config: Config) -> None:
    simulators = [Simulator(copier_library(config), base=BASE, size=SIZE) for _ in range(3)]
    simulators[0].write_register(REGISTERS["DMA_PROGRAM"].address, 64)
    del simulators[1]
    assert [simulator.read_register(REGISTERS["DMA_PROGRAM"].address) for simulator in simulators] == [64, 0]
    while simulators:
        simulators.pop(0).run(10)


def test_a_broken_assertion_stops_the_simulator_that_broke_it(config: Config) -> None:
    simulator, other = (Simulator(copier_library(config), base=BASE, size=SIZE) for _ in range(2))
    full = config.memory.feature_bytes // (BEATS * config.axi.data_bytes)
    start(simulator, bursts=full)
    assert simulator.run(100_000, until_interrupt=True) is StopReason.INTERRUPT
    simulator.write_register(REGISTERS["INTERRUPT"].address, 1)
    start(simulator, bursts=full + 1)
    for _ in range(2):
        with pytest.raises(
            SimulationError,
            match=r"^the core did in cycle \d+ what it must never do: feature memory: a "
            r"transfer beyond its end; report it with the model$",
        ):
            simulator.run(100_000, until_interrupt=True)
    start(other, bursts=1)
    assert other.run(10_000, until_interrupt=True) is StopReason.INTERRUPT


@pytest.mark.parametrize(
    "settings",
    [
        MemorySettings(),
        MemorySettings(read_latency=1, write_latency=1, outstanding=1),
        MemorySettings(beat_interval=3),
        MemorySettings(stall_probability=0.5, seed=3),
    ],
)
def test_copies_every_byte_and_no_other(simulator: Simulator, config: Config, settings: MemorySettings) -> None:
    simulator.configure(settings)
    size = 3 * BEATS * config.axi.data_bytes
    before = bytes(simulator.memory)
    start(simulator, bursts=3)
    assert simulator.run(20_000, until_interrupt=True) is StopReason.INTERRUPT
    after = bytearray(before)
    after[TARGET : TARGET + size] = before[SOURCE : SOURCE + size]
    assert bytes(simulator.memory) == bytes(after)
    simulator.run(4)
    assert simulator.read_feature(0, size) == before[SOURCE : SOURCE + size]
    # From any byte on, and past the end.
    assert simulator.read_feature(config.memory.feature_bytes - 1, size)[1:] == before[SOURCE : SOURCE + size - 1]


@pytest.mark.parametrize(("read_latency", "write_latency", "beat_interval"), [(40, 40, 1), (1, 7, 1), (100, 1, 4)])
def test_time_of_a_burst(simulator: Simulator, read_latency: int, write_latency: int, beat_interval: int) -> None:
    simulator.configure(
        MemorySettings(read_latency=read_latency, write_latency=write_latency, beat_interval=beat_interval)
    )
    start(simulator, bursts=2)
    simulator.run(10_000, until_interrupt=True)
    simulator.run(1)
    done = [int(cycle) for cycle, kind in simulator.events() if kind == EventKind.DMA_DONE]
    # The copier spends one cycle on each address; beats are counted from the first to the last.
    beats = (BEATS - 1) * beat_interval
    assert done[1] - done[0] == (read_latency + beats + 1) + (1 + beats) + write_latency + 1


def test_the_trace_has_each_rise_of_the_interrupt(simulator: Simulator) -> None:
    rises = []
    for _ in range(2):
        start(simulator, bursts=1)
        assert simulator.run(10_000, until_interrupt=True) is StopReason.INTERRUPT
        rises.append(simulator.cycle)
        # However long it stays high.
        simulator.run(50)
    assert [int(cycle) for cycle, kind in simulator.events() if kind == EventKind.INTERRUPT] == rises


def test_stops_at_a_completed_command(simulator: Simulator, config: Config) -> None:
    start(simulator, bursts=3)
    size = BEATS * config.axi.data_bytes
    assert simulator.run(10_000, until_compute_done=(2,)) is StopReason.COMPUTE_DONE
    target = simulator.memory[TARGET : TARGET + 3 * size]
    assert target[: 2 * size] == simulator.memory[SOURCE : SOURCE + 2 * size]
    assert target[2 * size :] != simulator.memory[SOURCE + 2 * size : SOURCE + 3 * size]


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("place", [SOURCE, TARGET])
def test_faults(simulator: Simulator, config: Config, fault: Fault, place: int) -> None:
    size = BEATS * config.axi.data_bytes
    simulator.add_fault(BASE + place + size, BASE + place + size + 1, fault)
    start(simulator, bursts=3)
    assert simulator.run(10_000, until_interrupt=True) is StopReason.INTERRUPT
    error = simulator.read_register(REGISTERS["ERROR"].address)
    assert (error & 0xFF, error >> 16) == (5 + (fault is Fault.DECODE), 1)
    simulator.clear_faults()
    start(simulator, bursts=1)
    simulator.run(10_000, until_interrupt=True)
    assert simulator.read_register(REGISTERS["STATUS"].address) == registers.STATUS_DONE


def test_outside_the_memory_is_an_error(simulator: Simulator) -> None:
    start(simulator, bursts=1, source=SIZE)
    simulator.run(10_000, until_interrupt=True)
    assert simulator.read_register(REGISTERS["ERROR"].address) & 0xFF == 6


@pytest.mark.parametrize("silent", ["accept", "answer"])
def test_a_memory_that_does_not_answer_until_it_is_released(simulator: Simulator, silent: str) -> None:
    simulator.configure(MemorySettings(**{silent: False}))
    start(simulator, bursts=1)
    assert simulator.run(5_000, until_interrupt=True) is StopReason.LIMIT
    simulator.configure(MemorySettings())
    assert simulator.run(500, until_interrupt=True) is StopReason.INTERRUPT


@pytest.mark.regress
@pytest.mark.parametrize("config", ["wide"], indirect=True)
def test_breaking_the_rules_of_axi_is_noticed(simulator: Simulator) -> None:
    start(simulator, bursts=1, source=4096 - 64)
    with pytest.raises(
        SimulationError, match=r"a burst must not cross a boundary of 4096 bytes \(burst at 0x40000fc0\)$"
    ):
        simulator.run(10_000, until_interrupt=True)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"read_latency": 0}, "^read_latency must be between 1 and 100000, not 0$"),
        ({"stall_probability": 1.0}, "^stall_probability must be between 0 and 0.99, not 1.0$"),
    ],
)
def test_bad_settings(bad: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MemorySettings(**bad)
