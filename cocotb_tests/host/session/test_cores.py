"""Several cores on the simulated accelerator: by sample and by layer, with the shipped driver."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path

import numpy as np
import pytest

from cocotb_tests.support.networks.generated import TINY, Limits, Maker, chain
from lutterfly.examples import digits
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.registers import CONTROL_RESET, REGISTERS
from lutterfly.golden.units import ErrorCode, Queue, Unit
from lutterfly.host import InferenceSession
from lutterfly.host.command.main import main
from lutterfly.host.driver.driver import AcceleratorError
from lutterfly.host.model.runtime import open_with, session_options
from lutterfly.host.program import BusUse, SpreadBy
from lutterfly.host.report.observe import observe
from lutterfly.host.session.loading import load, load_program
from lutterfly.host.session.verify import verify
from lutterfly.host.simulation.simulator import Fault, MemorySettings, VerilatorTransport

CORES = 2
CONFIG = dataclasses.replace(PRESETS["tiny"], cluster=ClusterConfig(cores=CORES))
MODEL = digits.model_path("qdq")
#: Stalls on every channel, and each core held back at random while the other goes on.
ROUGH = MemorySettings(read_latency=90, write_latency=70, hold=500, seed=3, stall_probability=0.3)
BY = pytest.mark.parametrize("spread_by", SpreadBy)


@functools.cache
def transport() -> VerilatorTransport:
    return VerilatorTransport(CONFIG)


def session_of(spread_by: SpreadBy) -> InferenceSession:
    return InferenceSession(MODEL, CONFIG, transport(), spread_by=spread_by)


def expected(count: int) -> np.ndarray:
    session = open_with(MODEL.read_bytes(), session_options(qdq=True))
    name = session.get_inputs()[0].name
    return np.concatenate([session.run(None, {name: image[None]})[0] for image in digits.images()[:count]])


def feeds(session: InferenceSession, count: int) -> dict[str, np.ndarray]:
    return {session.get_inputs()[0].name: digits.images()[:count]}


@pytest.mark.regress
@BY
def test_every_byte_and_the_cycles(spread_by: SpreadBy) -> None:
    found = verify(MODEL, CONFIG, samples=4, spread_by=spread_by)
    assert found.is_right, found.verdict
    assert len(found.program.cores) == CORES
    assert all(core.layers for core in found.program.cores)
    assert found.layers[-1].predicted == found.cycles


@pytest.mark.regress
@BY
@pytest.mark.parametrize(("side", "channels"), [(48, 4), (33, 20), (36, 8), (24, 12), (31, 16)])
def test_cycles_where_all_cores_load_and_store_at_once(side: int, channels: int, spread_by: SpreadBy) -> None:
    """Maps that the feature memories do not hold: the bus is taken by all, in bursts that are whole and ones that are
    not."""
    made = Maker(np.random.default_rng(7), "qop", False, TINY)
    made.start((1, 3, side, side))
    for inputs in (3, channels):
        made.product("Conv", (channels, inputs, 1, 1), 0, (1, channels, side, side))
    found = verify(made.finish().model, CONFIG, samples=CORES, spread_by=spread_by)
    assert found.bytes_right, found.verdict
    assert all(core.spilled for core in found.program.cores) or spread_by is SpreadBy.LAYER
    assert found.program.predicted_cycles == found.cycles


@pytest.mark.regress
def test_turns_go_on_from_run_to_run() -> None:
    """Who is served first is the one behind the last of the run before: here that takes three cycles."""
    limits = Limits(side=24, map_bytes=24 << 10, weight_bytes=32 << 10, macs=1_500_000)
    found = verify(chain(10, form="qdq", limits=limits).model, CONFIG, samples=2, spread_by=SpreadBy.LAYER)
    assert found.bytes_right, found.verdict
    assert found.program.predicted_cycles == found.cycles


@pytest.mark.regress
@BY
def test_every_byte_where_cores_are_held_back(spread_by: SpreadBy) -> None:
    assert verify(MODEL, CONFIG, samples=4, spread_by=spread_by, settings=ROUGH).mismatched_bytes == 0


@pytest.mark.regress
@BY
def test_batches_larger_than_the_cores(spread_by: SpreadBy) -> None:
    session = session_of(spread_by)
    (found,) = session.run(None, feeds(session, 5))
    np.testing.assert_array_equal(found, expected(5))
    runs = 3 if spread_by is SpreadBy.SAMPLE else 5
    assert len(session.counters) == len(session.core_counters) == runs
    for counters, cores in zip(session.counters, session.core_counters, strict=True):
        assert counters["cycles"] == max(core["cycles"] for core in cores)
        assert counters["dma_done"] == sum(core["dma_done"] for core in cores)
        waited = [core["barrier_stalled"] for core in cores]
        assert any(waited) == (spread_by is SpreadBy.LAYER)


@pytest.mark.regress
@BY
def test_a_bus_error_of_one_core_stops_all(spread_by: SpreadBy) -> None:
    session = session_of(spread_by)
    session.run(None, feeds(session, 2))
    program, simulator = session.program, session.transport.simulator
    # What the second core stores alone.
    stores = program.outputs[0].addresses[-1] if spread_by is SpreadBy.SAMPLE else None
    address = stores if stores is not None else program.inputs[0].addresses[0] + program.inputs[0].size_bytes - 8
    simulator.add_fault(session.transport.arena_base + address, session.transport.arena_base + address + 8, Fault.SLAVE)
    before = simulator.cycle
    with pytest.raises(AcceleratorError, match=r"^AXI_SLAVE in (STORE|LOAD) of core 1 at address 0x") as caught:
        session.run(None, feeds(session, 2))
    simulator.clear_faults()
    assert simulator.cycle - before < program.predicted_cycles + 10_000
    assert (caught.value.code, caught.value.core) == (ErrorCode.AXI_SLAVE, 1)
    assert caught.value.unit in (Unit.STORE, Unit.LOAD)
    (found,) = session.run(None, feeds(session, 3))
    np.testing.assert_array_equal(found, expected(3))


@pytest.mark.regress
def test_a_soft_reset_while_cores_are_under_way() -> None:
    session = session_of(SpreadBy.LAYER)
    driver = session.driver()
    for cycles in (50, 900, 2500):
        with session.transport.exclusive():
            driver.begin(session.head(feeds(session, 1)))
            session.transport.simulator.run(cycles)
            session.transport.write_register(REGISTERS["CONTROL"].address, CONTROL_RESET)
            driver.reset()
        (found,) = session.run(None, feeds(session, 2))
        np.testing.assert_array_equal(found, expected(2))


def test_what_a_program_is_compiled_for_is_kept() -> None:
    program = load_program(MODEL, CONFIG)
    assert (program.batch, program.shares) == (CORES, CORES)
    with pytest.raises(
        ValueError, match=r"^model: spread must be by sample, which the program is compiled for, not by"
    ):
        InferenceSession(program, CONFIG, backend="golden", spread_by=SpreadBy.LAYER)
    with pytest.raises(ValueError, match=r"^model: program must be for the 1 cores of this hardware, not for 2;"):
        InferenceSession(program, PRESETS["tiny"])


@pytest.mark.regress
@BY
def test_the_commands(spread_by: SpreadBy, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--config", "tiny", "--cores", str(CORES), "--spread", spread_by]
    assert main(["check", str(MODEL), *options, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert len(values["cores"]) == CORES
    assert any(core["barriers"] for core in values["cores"]) == (spread_by is SpreadBy.LAYER)
    assert main(["check", str(MODEL), *options]) == 0
    said = capsys.readouterr().out
    assert "core 1: " in said
    loaded = load(MODEL, CONFIG, spread_by=spread_by)
    bus = BusUse.of(CONFIG, loaded.bodies, loaded.program.predicted_cycles)
    assert f"shared bus: {bus.text}\n" in said
    image, page = tmp_path / "image.npy", tmp_path / "report.html"
    np.save(image, digits.images()[:1])
    assert main(["run", str(MODEL), "--input", str(image), "--report", str(page), *options]) == 0
    text = page.read_text()
    assert f"{CORES} cores" in text
    assert "<h1>Core 1</h1>" in text
    assert f"They share one bus: {dataclasses.replace(bus, cycles=values['predicted_cycles']).text}." in text


@pytest.mark.regress
@BY
def test_every_command_of_every_core_runs_when_it_is_predicted(spread_by: SpreadBy) -> None:
    """Which begins with the cycle of the start, as the interrupt of all cores says."""
    session = session_of(spread_by)
    session.run(None, feeds(session, session.batch))
    observed = observe(session, session.transport.simulator, session.loaded.bodies, feeds(session, session.batch))
    assert len(observed) == CORES
    for core in observed:
        for queue in Queue:
            # What counts of a layer's last step is when it is issued.
            wrong = [ran for ran in core.queue(queue) if (ran.begin, ran.end) != (ran.command.begin, ran.command.end)]
            assert core.queue(queue)
            assert not wrong


def test_one_core_is_not_spread(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(MODEL), "--config", "tiny", "--spread", "layer"]) == 2
    assert "spread must be left out for one core" in capsys.readouterr().err
