# amaranth: UnusedElaboratable=no
"""The twin of a board, to the pins of the generated top and of the netlist that goes to place and route."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import serial
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.tiers import needs_gowin, needs_tools
from lutterfly.boards import BOARDS
from lutterfly.examples import digits
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ArenaConfig, ArrayConfig, MemoryConfig
from lutterfly.golden.engines import MAC, MAXIMUM, EngineConfigs
from lutterfly.golden.link.frames import LEAST_BIT_TIME, PARTS, Frame
from lutterfly.golden.link.operations import Operation
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.stages import stages
from lutterfly.hdl.top_uart import TopUart
from lutterfly.host import InferenceSession
from lutterfly.host.command.main import main
from lutterfly.host.driver.driver import HardwareError
from lutterfly.host.quantize import quantize
from lutterfly.host.session.compare import TOLERANCE
from lutterfly.host.transports.line import LinkError, PortError, SerialLine
from lutterfly.host.transports.link import LinkTransport, configuration_of, open_device
from lutterfly.host.transports.twin import Pins, PinsLine, Twin, netlist_pins
from lutterfly.synth import bitstream, flow
from lutterfly.synth.families import family_of

#: So small that the digits' constants come in windows.
CONFIG = dataclasses.replace(PRESETS["tiny"], arena=ArenaConfig(8 << 10))
#: As slow as a clock can be for 3,000,000 bits a second: fewer cycles to simulate for each byte.
CLOCK_HZ = 24_000_000
MODEL = digits.model_path("qop")


@pytest.fixture(scope="module")
def device() -> Iterator[str]:
    with Twin(Pins.build(CONFIG, CLOCK_HZ)).served() as name:
        yield name


@pytest.fixture(scope="module")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("twin") / "config.json"
    path.write_text(CONFIG.to_json())
    return path


@pytest.fixture
def board(device: str) -> Iterator[LinkTransport]:
    transport = open_device(device)
    yield transport
    transport.close()


def expected(count: int) -> np.ndarray:
    golden = InferenceSession(MODEL, CONFIG, backend="golden")
    return golden.run(None, {golden.get_inputs()[0].name: digits.images()[:count]})[0]


def answer_of(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict]:
    code = main([*map(str, words), "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.regress
def test_digits_through_the_pins(board: LinkTransport) -> None:
    session = InferenceSession(MODEL, CONFIG, board)
    assert len(stages(session.program, board.arena_bytes)) > 1
    (found,) = session.run(None, {session.get_inputs()[0].name: digits.images()[:3]})
    np.testing.assert_array_equal(found, expected(3))
    cycles, predicted = session.counters[-1]["cycles"], session.program.predicted_cycles
    assert abs(cycles - predicted) <= TOLERANCE * predicted
    assert board.client.rate == 3_000_000


@pytest.mark.regress
@pytest.mark.parametrize("name", ["ulx3s-85f", "colorlight-i5"])
def test_digits_and_bytes_from_an_sdram(name: str) -> None:
    """Through the pins of the serial port and of the chip, whose model stops at what its data sheet forbids. One chip
    has masks, and words of 16 bits; the other has none, and words of 32."""
    config, sdram = PRESETS["tiny"], BOARDS[name].sdram
    line = PinsLine(Pins.build(config, CLOCK_HZ, sdram=sdram))
    board = LinkTransport(line, clock=line.clock)
    assert board.arena_bytes == sdram.size_bytes
    rng, images = np.random.default_rng(5), digits.images()[:2]
    # At both ends, over the end of a row, and in other banks and rows.
    sizes = {0: 1, 3: 9, (1 << 10) - 5: 1500, sdram.size_bytes // 2: 7, sdram.size_bytes - 100: 100}
    parts = {at: rng.integers(0, 256, size, dtype=np.uint8).tobytes() for at, size in sizes.items()}
    for at, data in parts.items():
        board.write_memory(at, data)
    assert [board.read_memory(at, len(data)) for at, data in parts.items()] == list(parts.values())
    session = InferenceSession(MODEL, config, board)
    golden = InferenceSession(MODEL, config, backend="golden")
    feeds = {session.get_inputs()[0].name: images}
    for _ in range(2):
        (found,) = session.run(None, feeds)
        np.testing.assert_array_equal(found, golden.run(None, feeds)[0])
    assert board.client.repeated == 0
    # A small core waits little for a memory that gives half a word of the bus a cycle.
    assert (
        abs(session.counters[-1]["cycles"] - session.program.predicted_cycles) < 0.02 * session.program.predicted_cycles
    )
    board.close()


@pytest.mark.regress
def test_says_what_it_is(board: LinkTransport) -> None:
    assert (board.arena_bytes, board.client.identity.clock_hz) == (CONFIG.arena.on_chip_bytes, CLOCK_HZ)
    assert board.client.is_simulated
    with pytest.raises(HardwareError, match=rf"^CONFIG_HASH must be a preset's, and {CONFIG.hash:#010x} is of none"):
        configuration_of(board)


@pytest.mark.regress
def test_a_client_that_is_killed_leaves_a_board_that_works(device: str) -> None:
    """Anywhere in a load, at a rate that the next client does not know."""
    script = "import sys\nfrom lutterfly.host.transports.link import open_device\nboard = open_device(sys.argv[1])\n"
    script += "print('open', flush=True)\nwhile True: board.write_memory(0, bytes(8192))\n"
    for delay in (0.0, 0.3, 1.0):
        process = subprocess.Popen([sys.executable, "-c", script, device], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        process.stdout.close()
        # What it has written lies in the terminal until the twin looks, which a real adapter sends by itself. Looked at
        # after the next client has set the first rate, it would take the line for seconds of this machine's time.
        time.sleep(1)
        board = open_device(device)
        try:
            board.write_memory(64, b"whole")
            assert board.read_memory(64, 5) == b"whole"
        finally:
            board.close()


@pytest.mark.regress
def test_a_wrong_rate_reads_as_on_a_board(device: str) -> None:
    path = device.removeprefix("uart:")
    frame = Frame(1, Operation.IDENTIFY).encode()
    with serial.Serial(path, 57_600, timeout=3) as port:
        port.write(b"\0" + frame)
        assert frame[:4] not in port.read(24)
    # It does no harm.
    board = open_device(device)
    board.close()


@pytest.mark.regress
def test_one_program_at_a_time(device: str, board: LinkTransport) -> None:
    path = device.removeprefix("uart:")
    with pytest.raises(PortError, match=rf"^{path}: must be free, and another program uses it; end that one$"):
        open_device(device)


def test_what_is_open_otherwise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PortError, match=r"^/dev/ttyNONE: must be a serial port, and is not there; there (is none|are)"):
        open_device("uart:/dev/ttyNONE")
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(PortError, match=rf"^{file}: must be a serial port, and is none \("):
        open_device(f"uart:{file}")
    for name in ("", "uart:", "/dev/ttyUSB0"):
        with pytest.raises(ValueError, match=r"^device must be uart: and a serial port, as uart:/dev/ttyUSB0, not"):
            open_device(name)
    monkeypatch.setitem(sys.modules, "serial", None)
    with pytest.raises(PortError, match=r"^a serial port needs pyserial, which is not installed; run: .*\[board\]"):
        open_device("uart:/dev/ttyUSB0")


def test_a_port_that_goes_is_told() -> None:
    """As when the cable of an adapter is pulled."""
    ours, theirs = os.openpty()
    line = SerialLine(os.ttyname(theirs))
    os.close(theirs)
    os.close(ours)
    with pytest.raises(PortError, match=r"^/dev/pts/\d+: must stay connected, and does not answer any more"):
        line.read(1.0)
    with pytest.raises(PortError, match=r"^/dev/pts/\d+: must stay connected, and does not answer any more"):
        line.write(b"a")
    line.close()


def test_nothing_answers_at_a_terminal_without_a_board(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lutterfly.host.transports.line._SIMULATED_SLOWNESS", 0.2)
    ours, theirs = os.openpty()
    with pytest.raises(LinkError, match=r"^/dev/pts/\d+: a board must answer within \d+ s, and does not; check that"):
        open_device(f"uart:{os.ttyname(theirs)}")
    os.close(ours)
    os.close(theirs)


@pytest.mark.regress
def test_the_selftest(device: str, config_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = answer_of(capsys, "selftest", "--device", device, "--config", config_file, "--samples", 2)
    assert (code, found["is_right"], found["differing_bytes"], found["mismatched_bytes"]) == (0, True, 0, 0)
    assert (found["arena_bytes"], found["samples"], found["rate"]) == (8192, 2, 3_000_000)
    assert (found["damaged_frame_refused"], found["is_simulated"]) == (True, True)
    assert found["mhz"] == CLOCK_HZ / 1e6


@pytest.mark.regress
def test_run_verify_and_evaluate(
    device: str, config_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images, labels = digits.images()[:2], digits.labels()[:2]
    for name, array in (("x", images), ("labels", labels)):
        np.save(tmp_path / f"{name}.npy", array)
    at = ("--device", device, "--config", config_file)
    given = ("--input", tmp_path / "x.npy", "-o", tmp_path / "y.npy")
    code, found = answer_of(capsys, "run", MODEL, *given, *at)
    assert (code, found["mhz"]) == (0, CLOCK_HZ / 1e6)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected(2))
    code, found = answer_of(capsys, "verify", MODEL, "--samples", 2, *at)
    assert (code, found["mismatched_bytes"]) == (0, 0)
    assert [layer["name"] for layer in found["layers"]] == ["inference"]
    assert {tensor["name"] for tensor in found["tensors"] if tensor["rtl"] is not None} >= {"logits (output)"}
    scored = ("--data", tmp_path / "x.npy", "--labels", tmp_path / "labels.npy")
    code, found = answer_of(capsys, "evaluate", MODEL, *scored, *at)
    assert code == 0
    code, found = answer_of(capsys, "run", MODEL, *given, *at, "--report", tmp_path / "report.html")
    assert (code, found["error"].partition(",")[0]) == (2, "report must be of a simulated accelerator")


@pytest.mark.regress
def test_another_configuration_is_refused(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = answer_of(capsys, "verify", MODEL, "--device", device, "--config", "ecp5-25k-on-chip")
    assert code == 1
    assert found["error"].startswith("CONFIG_HASH must be")
    assert found["error"].endswith("name the configuration that the hardware was generated from")


@pytest.mark.regress
def test_a_program_for_a_larger_arena_is_refused(board: LinkTransport) -> None:
    large: Config = dataclasses.replace(CONFIG, arena=ArenaConfig(64 << 10))
    assert large.hash != CONFIG.hash
    with pytest.raises(HardwareError, match=r"^CONFIG_HASH must be"):
        InferenceSession(MODEL, large, board).run(None, {"pixels": digits.images()[:1]})


# The netlist that goes to place and route runs a digit through its pins, to the bytes of ONNX Runtime.

# A network for digits of a few hundred weights, for hardware that simulates slowly: fitted, not trained.

_CHANNELS, _KERNEL, _FEATURES, _CLASSES = 4, 3, 36, 10
#: How many of the images it is fitted to, the first ones.
FITTED = 240


def small_digits() -> bytes:
    """The quantised model, with input and output as the example's: random filters, a max pooling, and the fully
    connected layer that a least-squares fit gives."""
    rng = np.random.default_rng(33)
    filters = rng.normal(0, 0.5, (_CHANNELS, 1, _KERNEL, _KERNEL)).astype(np.float32)
    images, labels = digits.images()[:FITTED], digits.labels()[:FITTED]
    features = _run(_model(filters, np.eye(_FEATURES, dtype=np.float32), np.zeros(_FEATURES, np.float32)), images)
    wanted = np.eye(_CLASSES)[labels]
    extended = np.hstack([features, np.ones((FITTED, 1))])
    # A little of the identity keeps the weights small.
    fitted = np.linalg.solve(extended.T @ extended + 0.1 * np.eye(_FEATURES + 1), extended.T @ wanted)
    model = _model(filters, fitted[:-1].astype(np.float32), fitted[-1].astype(np.float32))
    return quantize(model.SerializeToString(), {"pixels": images})


def _model(filters: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> onnx.ModelProto:
    constants = {"filters": filters, "weights": weights, "bias": bias}
    nodes = [
        helper.make_node("Conv", ["pixels", "filters"], ["sums"]),
        helper.make_node("Relu", ["sums"], ["rectified"]),
        helper.make_node("MaxPool", ["rectified"], ["pooled"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["pooled"], ["features"]),
        helper.make_node("Gemm", ["features", "weights", "bias"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small_digits",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["images", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["images", weights.shape[1]])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _run(model: onnx.ModelProto, images: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"pixels": images})[0]


#: As few cells and cycles as classify digits: a slow clock makes few cycles of a bit at the line's first rate.
SMALL = dataclasses.replace(
    PRESETS["tiny"],
    array=ArrayConfig(lanes=4, columns=2, requant_lanes=1),
    memory=MemoryConfig(feature_bytes=2048, weight_bytes=4096, parameter_bytes=1024, tables=2, list_entries=128),
    engines=EngineConfigs.of(MAC, MAXIMUM),
    arena=ArenaConfig(4096),
)
SLOW_MHZ = 5.0
DIGITS = 3


def runs_a_digit(config: Config, name: str, mhz: float, model: bytes, folder: Path) -> Counter[str]:
    """Compare the last digits; the netlist's cells by type."""
    board = dataclasses.replace(BOARDS[name], core_mhz=mhz)
    device = bitstream.board_device(board)
    family = family_of(device)
    steps: list[str] = []
    netlist = flow.map_cells(bitstream.top_of(board, TopUart(config, board.core_hz)), folder, device, steps.append)
    assert steps == ["elaborate", "synthesise"]
    line = PinsLine(netlist_pins(netlist, family.library, config, board.core_hz, cache_root=folder))
    transport = LinkTransport(line, (board.core_hz * PARTS // LEAST_BIT_TIME,), clock=line.clock)
    session, images = InferenceSession(model, config, transport), digits.images()
    reference = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (expected,) = reference.run(None, {"pixels": images})
    assert np.mean(expected[FITTED:].argmax(axis=1) == digits.labels()[FITTED:]) > 0.8
    # One after the other, without a reset between.
    (found,) = session.run(None, {"pixels": images[-DIGITS:]})
    assert found.tobytes() == expected[-DIGITS:].tobytes()
    # The program is so short that what is ready when it begins shows.
    assert abs(session.counters[-1]["cycles"] - session.program.predicted_cycles) < 100
    assert transport.client.repeated == 0
    return Counter(cell["type"] for cell in netlist["modules"]["top"]["cells"].values())


@needs_tools
@pytest.mark.regress
@pytest.mark.long
def test_a_small_boards_netlist(tmp_path: Path) -> None:
    cells = runs_a_digit(SMALL, "ulx3s-25f", SLOW_MHZ, small_digits(), tmp_path)
    # Eight of the array, one of the requantiser.
    assert cells["MULT18X18D"] == 9
    assert min(cells[kind] for kind in ("LUT4", "CCU2C", "TRELLIS_FF", "TRELLIS_DPR16X4", "DP16KD", "MULT18X18D")) > 0


@needs_gowin
@pytest.mark.regress
@pytest.mark.long
def test_a_small_netlist_of_a_gw5a(tmp_path: Path) -> None:
    """At the oscillator's clock, for want of a PLL."""
    cells = runs_a_digit(SMALL, "tang-mega-138k", BOARDS["tang-mega-138k"].oscillator_mhz, small_digits(), tmp_path)
    # Of two columns of four lanes the first is wider, and the requantiser takes whole factors.
    assert (cells["MULT12X12"], cells["MULT27X36"]) == (8, 1)
    assert min(cells[kind] for kind in ("LUT4", "ALU", "DFFRE", "DFFSE", "RAM16SDP4")) > 0


@needs_tools
@pytest.mark.regress
@pytest.mark.long
def test_the_netlist_of_the_largest_board(tmp_path: Path) -> None:
    board = BOARDS["ulx3s-85f"]
    runs_a_digit(PRESETS[board.preset], board.name, board.core_mhz, small_digits(), tmp_path)
