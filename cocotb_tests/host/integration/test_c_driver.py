"""The exported C driver over the golden machine: inferences, stages, refusals, errors, resets."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import numpy as np
import pytest

from cocotb_tests.support.transports.c_driver import BODY, CDriver, Idle
from cocotb_tests.support.transports.golden_transport import GoldenTransport
from lutterfly.examples import digits
from lutterfly.golden import registers
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.machine.flights import MachineError
from lutterfly.golden.machine.images import tensor_codes
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.program import Port, Program
from lutterfly.golden.program.stages import stages
from lutterfly.golden.units import REMEDIES_OF_UNITS, WITH_ADDRESS, ErrorCode, Unit, remedy
from lutterfly.host.compiler import compile_model
from lutterfly.host.driver import ports
from lutterfly.host.driver.driver import Driver
from lutterfly.host.program import SpreadBy

TINY = PRESETS["tiny"]
TWO = dataclasses.replace(TINY, cluster=ClusterConfig(2))


@functools.cache
def compiled(config: Config = TINY, form: str = "qop", spread: SpreadBy = SpreadBy.SAMPLE) -> Program:
    return compile_model(digits.model_path(form).read_bytes(), config, spread_by=spread)


def codes(program: Program, seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    low = 0 if program.inputs[0].unsigned else -128
    return [random.integers(low, low + 256, port.onnx_shape).astype(ports.port_dtype(port)) for port in program.inputs]


@functools.cache
def expected(form: str, spread: SpreadBy, config: Config, seed: int) -> list[np.ndarray]:
    """What the Python driver gives."""
    program, driver = compiled(config, form, spread), Driver(GoldenTransport(config), config)
    driver.load(program)
    return driver.infer(codes(program, seed))


def opened(folder: Path, *, arena_bytes: int = 1 << 20, stage_bytes: int | None = None) -> CDriver:
    driver = CDriver(folder, compiled(), GoldenTransport(TINY, arena_bytes=arena_bytes), stage_bytes=stage_bytes)
    assert driver.open() == "OK"
    return driver


def assert_right(
    driver: CDriver, seed: int, config: Config = TINY, *, form: str = "qop", spread: SpreadBy = SpreadBy.SAMPLE
) -> None:
    found = driver.infer(codes(driver.program, seed))
    for one, other in zip(found, expected(form, spread, config, seed), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.regress
@pytest.mark.parametrize("polls", [False, True])
def test_inferences_back_to_back_load_the_weights_once(tmp_path: Path, polls: bool) -> None:
    program, transport = compiled(), GoldenTransport(TINY)
    driver = CDriver(tmp_path, program, transport, polls=polls)
    assert (driver.open(), driver.load()) == ("OK", "OK")
    for seed in (0, 1):
        assert_right(driver, seed)
    core = program.cores[0]
    assert transport.starts == [core.prologue.dma.address, *2 * [core.body.dma.address]]
    assert driver.cycles == 1000
    assert transport.values["WATCHDOG"] == registers.WATCHDOG_DEFAULT
    assert driver.calls.count("wait") == (0 if polls else 3)


def test_program_registers_are_written_once(tmp_path: Path) -> None:
    """What is written again would be fetched again."""
    driver = opened(tmp_path)
    assert driver.load() == "OK"
    counts = []
    for seed in range(3):
        driver.calls.clear()
        assert_right(driver, seed)
        counts.append(driver.calls.count("write_register"))
    assert counts[0] > counts[1] == counts[2] == 3  # the interrupt twice, and the start
    driver.set_watchdog(1234)
    assert_right(driver, 3)
    assert driver.transport.values["WATCHDOG"] == 1234


@pytest.mark.regress
@pytest.mark.parametrize("spread", SpreadBy)
def test_two_cores(tmp_path: Path, spread: SpreadBy) -> None:
    program = compiled(TWO, "qop", spread)
    driver = CDriver(tmp_path, program, GoldenTransport(TWO))
    assert (driver.open(), driver.load()) == ("OK", "OK")
    assert_right(driver, 4, TWO, spread=spread)
    assert driver.cycles == 1000, "those of the core that was last, which is the first"
    driver.transport.next_error = MachineError(ErrorCode.BARRIER, Unit.BARRIER, 3, 0, core=1)
    with pytest.raises(
        RuntimeError, match=r"^STOPPED: BARRIER in BARRIER of core 1, command 3 of the inference; compile"
    ):
        driver.infer(codes(program, 5))
    assert_right(driver, 5, TWO, spread=spread)


@pytest.mark.regress
def test_unsigned_codes(tmp_path: Path) -> None:
    driver = CDriver(tmp_path, compiled(TINY, "uint8"), GoldenTransport(TINY))
    assert (driver.open(), driver.load()) == ("OK", "OK")
    assert_right(driver, 6, form="uint8")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_small_arena_gets_the_constants_in_stages(tmp_path: Path, share: float) -> None:
    program = compiled()
    size = program.body_bytes + int(share * (program.arena_bytes - program.body_bytes))
    driver = opened(tmp_path, arena_bytes=size, stage_bytes=size)
    count = len(stages(program, size))
    assert count == 1 if share > 0.9 else count > 1
    assert driver.load() == "OK"
    for seed in (0, 1):
        assert_right(driver, seed)
    assert len(driver.transport.starts) == count + 2
    assert driver.reset() == "OK"
    assert_right(driver, 2)
    assert len(driver.transport.starts) == 2 * count + 3


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("register", "status", "text"),
    [
        ("ID", "WRONG_ID", "ID must be 0x4654554c, not 0x4654554d; check the register port's address"),
        ("VERSION", "WRONG_VERSION", "VERSION must be 0x00000001, not 0x00000002; use the release of lutterfly that "),
        ("CONFIG_HASH", "WRONG_CONFIGURATION", f"CONFIG_HASH must be {TINY.hash:#010x}, not {TINY.hash + 1:#010x}; "),
    ],
)
def test_refuses_other_hardware(tmp_path: Path, register: str, status: str, text: str) -> None:
    transport = GoldenTransport(TINY)
    transport.values[register] += 1
    driver = CDriver(tmp_path, compiled(), transport)
    assert driver.open() == status
    assert driver.text().startswith(text)
    assert "write_register" not in driver.calls


def test_refuses_what_does_not_fit_before_anything_is_written(tmp_path: Path) -> None:
    driver = opened(tmp_path)
    assert driver.open(base=0x8000_0800) == "BAD_ARGUMENT"
    assert driver.text().endswith("must be a multiple of 4096, not 0x80000800")
    needed = driver.source.needed_bytes
    assert driver.open(arena_bytes=needed - 1) == "OK"
    driver.calls.clear()
    assert driver.load() == "ARENA_TOO_SMALL"
    assert driver.text().startswith(f"bytes of the arena must be {needed}, not {needed - 1}; ")
    assert driver.load_other(TINY.hash + 1, 1) == driver.load_other(TINY.hash, 2) == "WRONG_MODEL"
    with pytest.raises(RuntimeError, match=r"^NOT_LOADED: a model must be loaded first; call lutterfly_load$"):
        driver.infer(codes(compiled(), 0))
    assert driver.calls == []
    assert driver.open(arena_bytes=needed) == driver.load() == "OK"


def test_refuses_lengths_before_anything_is_written(tmp_path: Path) -> None:
    driver = opened(tmp_path)
    assert driver.load() == "OK"
    driver.calls.clear()
    (right,) = codes(compiled(), 0)
    out = np.zeros(10, np.int8)
    for inputs, outputs, text in (
        ([], [out], "^WRONG_COUNT: buffers must be 1, not 0; "),
        ([right], [out, out], "^WRONG_COUNT: buffers must be 1, not 2; "),
        ([right[:, :, 1:]], [out], "^WRONG_LENGTH: number 0: bytes must be 64, not 56; "),
        ([np.zeros(65, np.int8)], [out], "^WRONG_LENGTH: number 0: bytes must be 64, not 65; "),
        ([right], [out[1:]], "^WRONG_LENGTH: number 0: bytes must be 10, not 9; "),
    ):
        with pytest.raises(RuntimeError, match=text):
            driver.infer(inputs, outputs=outputs)
    assert driver.calls == []
    assert_right(driver, 0)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("code", "unit"),
    [
        *((code, unit) for code, unit in REMEDIES_OF_UNITS),
        *((code, Unit.STORE) for code in ErrorCode if code is not ErrorCode.NONE),
    ],
)
def test_an_error_is_told_and_the_next_inference_is_right(tmp_path: Path, code: ErrorCode, unit: Unit) -> None:
    driver = opened(tmp_path)
    assert driver.load() == "OK"
    driver.transport.next_error = MachineError(code, unit, 7, 0x1240)
    with pytest.raises(RuntimeError, match=r"^STOPPED: ") as raised:
        driver.infer(codes(compiled(), 0))
    where = " at address 0x00001240" if code in WITH_ADDRESS else ""
    text = f"{code.name} in {unit.name} of core 0{where}, command 7 of the inference; {remedy(code, unit)}"
    assert str(raised.value) == f"STOPPED: {text}"
    error = driver.error
    assert (error.code, error.unit, error.index, error.address, error.core) == (code, unit, 7, 0x1240, 0)
    assert error.stage == BODY
    for room in (0, 1, 2, len(text), len(text) + 1):
        assert driver.text(room) == text[: max(room - 1, 0)]
    assert_right(driver, 1)


def test_an_error_in_a_stage_names_it(tmp_path: Path) -> None:
    driver = opened(tmp_path, stage_bytes=compiled().body_bytes)
    driver.transport.next_error = MachineError(ErrorCode.AXI_SLAVE, Unit.LOAD, 0, 64)
    assert driver.load() == "STOPPED"
    assert driver.error.stage == 0
    assert driver.text().startswith(
        "AXI_SLAVE in LOAD of core 0 at address 0x00000040, command 0 of stage 0 of the pro"
    )
    assert_right(driver, 3)


def test_a_run_that_never_ends_and_a_reset_that_never_ends_are_bounded(tmp_path: Path) -> None:
    driver = opened(tmp_path)
    assert driver.load() == "OK"
    driver.transport.hangs, limit = True, 100 * compiled().predicted_cycles
    with pytest.raises(RuntimeError, match=rf"^RUN_TIMEOUT: a run must end within {limit} cycles, and does not; check"):
        driver.infer(codes(compiled(), 0))
    assert driver.error.stage == BODY
    with pytest.raises(RuntimeError, match=r"^RESET_TIMEOUT: a soft reset must end within 65536 polls, and does not;"):
        driver.infer(codes(compiled(), 0))
    driver.transport.hangs = False
    assert_right(driver, 1)


def test_a_transport_that_fails_anywhere_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    """Every call of a load with stages and of an inference fails once; the next one writes all that is needed."""
    transport = Idle(compiled())
    driver = CDriver(tmp_path, compiled(), transport, stage_bytes=5000)
    start, reset = (("CONTROL", bit) for bit in (registers.CONTROL_START, registers.CONTROL_RESET))
    assert driver.open() == "OK"

    has_loaded = False

    def use() -> str:
        nonlocal has_loaded
        driver.calls.clear()
        transport.writes.clear()
        status = driver.load()
        has_loaded = status == "OK"
        if not has_loaded:
            return status
        try:
            driver.infer(codes(compiled(), 0))
        except RuntimeError as error:
            return str(error)
        return "OK"

    assert use() == "OK"
    whole, calls, writes = bytes(transport.memory), len(driver.calls), list(transport.writes)
    assert writes.count(start) == len(driver.source.stages) + 1 > 4
    assert reset not in writes
    for number in range(calls):
        assert driver.reset() == "OK"
        driver.fails_at = number
        assert use().startswith("TRANSPORT_FAILED")
        assert driver.text() == "the transport must reach the accelerator, and fails with -5; check the connection"
        assert len(driver.calls) == number + 1
        driver.fails_at, was_loaded = -1, has_loaded
        if not was_loaded:
            transport.memory[:] = bytes(len(whole))
        assert use() == "OK"
        assert transport.memory == whole
        # What is loaded stays, unless it had to be reset.
        stays = was_loaded and reset not in transport.writes
        assert transport.writes.count(start) == (1 if stays else writes.count(start))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["wait", "read_register"])
def test_a_run_of_which_the_end_is_not_seen_is_reset_before_the_next(tmp_path: Path, name: str) -> None:
    transport = Idle(compiled())
    driver = CDriver(tmp_path, compiled(), transport)
    assert driver.open() == driver.load() == "OK"
    driver.infer(codes(compiled(), 0))
    driver.calls.clear()
    driver.infer(codes(compiled(), 0))
    driver.fails_at = driver.calls.index(name)
    driver.calls.clear()
    with pytest.raises(RuntimeError, match=r"^TRANSPORT_FAILED: "):
        driver.infer(codes(compiled(), 0))
    driver.fails_at = -1
    transport.writes.clear()
    driver.infer(codes(compiled(), 0))
    assert transport.writes[0] == ("CONTROL", registers.CONTROL_RESET)
    assert transport.writes.count(("CONTROL", registers.CONTROL_START)) == 2


def random_ports(seed: int, shares: int) -> list[Port]:
    """Ports of every order, sign and width of elements, some larger than a chunk."""
    random, found, address = np.random.default_rng(seed), [], 0x8000
    for number in range(24):
        shape = tuple(int(size) for size in random.integers(1, 12, 3))
        axes = tuple(int(axis) for axis in random.permutation(3))
        bits = 1 if number % 3 == 0 else 8
        onnx = (shares, *(shape[axis] for axis in axes))
        port = Port(f"port {number}", shape, (0,) * shares, onnx, axes, bool(number % 2), bits)
        addresses = tuple(address + share * (port.size_bytes + 5) for share in range(shares))
        address = addresses[-1] + port.size_bytes + 5
        found.append(dataclasses.replace(port, addresses=addresses))
    return found


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(3))
def test_tensors_are_put_into_the_accelerators_order_and_back_as_the_python_driver_does(
    tmp_path: Path, seed: int
) -> None:
    plain = compiled(TINY if seed else TWO)
    inputs, outputs = (random_ports(number, plain.shares) for number in (seed, seed + 100))
    program = dataclasses.replace(
        plain,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        body_bytes=1 << 18,
        arena_bytes=1 << 19,
    )
    transport = Idle(program)
    driver = CDriver(tmp_path, program, transport, stage_bytes=1 << 19)
    assert (driver.open(), driver.load()) == ("OK", "OK")
    before = bytearray(np.random.default_rng(seed).bytes(len(transport.memory)))
    given = codes(program, seed)
    given = [array if port.unsigned else array.view(np.int8) for port, array in zip(inputs, given, strict=True)]
    transport.memory[:] = before
    found = driver.infer(given)
    written = {
        address: image
        for port, array in zip(inputs, given, strict=True)
        for address, image in ports.to_images(port, array).items()
    }
    for address, image in written.items():
        before[address : address + len(image)] = image
    assert transport.memory == before, "and no other byte has changed"
    for port, array in zip(outputs, found, strict=True):
        images = [bytes(before[address : address + port.size_bytes]) for address in port.addresses]
        np.testing.assert_array_equal(array, ports.from_images(port, images), err_msg=str(port))
        assert tensor_codes(np.frombuffer(images[0], np.uint8), port.shape, port.bits).size
