"""The exported C on the simulated accelerator: bytes of the golden functions, bounded ends, nothing undefined."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from cocotb_tests.support.transports.c_driver import STRICT, CDriver
from lutterfly.examples import digits
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.program import Program
from lutterfly.golden.program.stages import stages
from lutterfly.golden.units import ErrorCode, Unit, remedy
from lutterfly.host.backend.golden_functions import evaluate_all
from lutterfly.host.driver.ports import from_codes, port_dtype, to_codes
from lutterfly.host.integration.export import DRIVER, ModelSource, files
from lutterfly.host.session.loading import LoadedProgram, load
from lutterfly.host.simulation.build import library
from lutterfly.host.simulation.simulator import Fault, HarnessSettings, MemorySettings, VerilatorTransport

TINY = PRESETS["tiny"]
PLATFORM = Path(__file__).parents[2] / "support" / "transports" / "platform_simulator.c"
SANITISED = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.fixture(scope="module")
def loaded() -> LoadedProgram:
    return load(digits.model_path("uint8"), TINY)


def images(program: Program, count: int) -> list[np.ndarray]:
    """Held-out digits as the accelerator's input."""
    pixels = np.rint(digits.images()[:count] * 255).astype(np.uint8)
    return [image.reshape(program.inputs[0].onnx_shape) for image in pixels]


def golden(loaded: LoadedProgram, given: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What the golden functions compute."""
    (taken,), (port,) = loaded.program.inputs, loaded.program.outputs
    found = evaluate_all(loaded.graph, ([to_codes(taken, image)[0]] for image in given))
    return [from_codes(port, codes) for codes in found]


def settings_bytes(settings: MemorySettings) -> bytes:
    """The memory's settings as the simulator's library takes them."""
    return bytes(HarnessSettings(*(getattr(settings, name) for name, _ in HarnessSettings._fields_)))


def run_main(
    folder: Path,
    loaded: LoadedProgram,
    given: Sequence[np.ndarray],
    arena_bytes: int,
    settings: MemorySettings,
    *,
    polls: bool,
) -> subprocess.CompletedProcess[str]:
    """What main.c does with these inputs on the simulator, watched for wrong addresses and undefined behaviour."""
    source = ModelSource("digits", loaded.program, arena_bytes)
    for name, data in files(source).items():
        (folder / name).write_bytes(data)
    sources = ["main.c", "digits.c", *(name for name in DRIVER if name.endswith(".c"))]
    subprocess.run(["gcc", "-std=c99", *STRICT, *SANITISED, "-c", *sources], cwd=folder, check=True)
    objects = [name.replace(".c", ".o") for name in sources]
    command = ["gcc", *SANITISED, "-I.", "-o", "digits", str(PLATFORM), *objects, "-ldl"]
    subprocess.run(command, cwd=folder, check=True)
    (folder / "settings.bin").write_bytes(settings_bytes(settings))
    (folder / "inputs.bin").write_bytes(b"".join(image.tobytes() for image in given))
    environment = os.environ | {"SIMULATOR": str(library(TINY)), "ARENA_BYTES": str(source.needed_bytes)}
    if polls:
        environment["POLLS"] = "1"
    return subprocess.run(
        ["./digits"], cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=300
    )


@pytest.mark.regress
@pytest.mark.parametrize("polls", [False, True])
@pytest.mark.parametrize("is_small", [False, True])
def test_main_gives_the_bytes_of_the_golden_functions(
    tmp_path: Path, loaded: LoadedProgram, is_small: bool, polls: bool
) -> None:
    """Several inferences without a reset in between, in an arena that is no byte larger than need be."""
    program, given = loaded.program, images(loaded.program, 4)
    arena_bytes = program.body_bytes if is_small else program.arena_bytes
    assert (len(stages(program, arena_bytes)) > 1) == is_small
    settings = MemorySettings(stall_probability=0.2, seed=5) if is_small else MemorySettings()
    done = run_main(tmp_path, loaded, given, arena_bytes, settings, polls=polls)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found = np.frombuffer((tmp_path / "outputs.bin").read_bytes(), port_dtype(program.outputs[0]))
    np.testing.assert_array_equal(found, np.concatenate(golden(loaded, given)).reshape(-1))
    assert list(found.reshape(4, 10).argmax(axis=1)) == list(digits.labels()[:4])


@pytest.mark.regress
def test_main_ends_where_the_memory_accepts_nothing(tmp_path: Path, loaded: LoadedProgram) -> None:
    settings = MemorySettings(accept=False)
    done = run_main(tmp_path, loaded, [], loaded.program.arena_bytes, settings, polls=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == (
        f"WATCHDOG in PREFETCH of core 0, command 0 of stage 0 of the prologue; {remedy(ErrorCode.WATCHDOG)}\n"
    )


@pytest.fixture
def driver(tmp_path: Path, loaded: LoadedProgram) -> CDriver:
    """A short wait, so that its end can be waited for."""
    program = dataclasses.replace(loaded.program, predicted_cycles=1)
    made = CDriver(tmp_path, program, VerilatorTransport(TINY), stage_bytes=program.body_bytes)
    assert made.open() == made.load() == "OK"
    return made


def assert_right(driver: CDriver, loaded: LoadedProgram) -> None:
    """Two inferences without a reset in between."""
    given = images(loaded.program, 2)
    for image, wanted in zip(given, golden(loaded, given), strict=True):
        np.testing.assert_array_equal(driver.infer([image])[0], wanted)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("fault", Fault)
def test_a_bus_error_is_told_and_the_next_inferences_are_right(
    driver: CDriver, loaded: LoadedProgram, fault: Fault
) -> None:
    simulator, (image,) = driver.transport.simulator, images(loaded.program, 1)
    base, (address,) = driver.transport.arena_base, loaded.program.inputs[0].addresses
    simulator.add_fault(base + address, base + address + 64, fault)
    with pytest.raises(RuntimeError, match=rf"^STOPPED: AXI_{fault.name} in LOAD of core 0 at address 0x000000\d\d, "):
        driver.infer([image])
    assert (driver.error.code, driver.error.unit) == (ErrorCode[f"AXI_{fault.name}"], Unit.LOAD)
    with pytest.raises(RuntimeError, match=rf"^STOPPED: AXI_{fault.name} in .* of stage 0 of the prologue; "):
        driver.infer([image])
    simulator.clear_faults()
    assert_right(driver, loaded)
    # A program that is there already takes as long as was predicted.
    assert abs(driver.cycles - loaded.program.predicted_cycles) <= 16


@pytest.mark.regress
def test_a_hang_ends_with_and_without_the_watchdog(driver: CDriver, loaded: LoadedProgram) -> None:
    simulator, (image,) = driver.transport.simulator, images(loaded.program, 1)
    for watchdog, text in (
        (2000, r"^STOPPED: WATCHDOG in "),
        (0, r"^RUN_TIMEOUT: a run must end within 2000000 cycles, and does not; check that the external memory"),
    ):
        simulator.configure(MemorySettings(accept=False))
        driver.set_watchdog(watchdog)
        start = simulator.cycle
        with pytest.raises(RuntimeError, match=text):
            driver.infer([image])
        assert simulator.cycle - start < 2_100_000
        # A reset ends whatever the memory does.
        assert driver.reset() == "OK"
        simulator.configure(MemorySettings())
        assert_right(driver, loaded)


def test_a_reset_in_the_middle_of_an_inference_and_on(driver: CDriver, loaded: LoadedProgram) -> None:
    (image,) = images(loaded.program, 1)
    transport, wait = driver.transport, driver.transport.wait_for_interrupt
    transport.wait_for_interrupt = lambda _: wait(5000)
    with pytest.raises(RuntimeError, match=r"^RUN_TIMEOUT: "):
        driver.infer([image])
    transport.wait_for_interrupt = wait
    assert_right(driver, loaded)


def test_a_program_for_another_configuration_is_refused(tmp_path: Path, loaded: LoadedProgram) -> None:
    program = dataclasses.replace(loaded.program, config_hash=PRESETS["ecp5-85k"].hash)
    driver = CDriver(tmp_path, program, VerilatorTransport(TINY))
    assert driver.open() == "WRONG_CONFIGURATION"
    assert driver.text().startswith(f"CONFIG_HASH must be {program.config_hash:#010x}, not {TINY.hash:#010x}; export")
