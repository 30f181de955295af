# amaranth: UnusedElaboratable=no
"""The netlist that goes to place and route runs a digit through its pins, to the bytes of ONNX Runtime."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.tiers import needs_tools
from lutterfly.boards import BOARDS
from lutterfly.examples import digits
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ArenaConfig, ArrayConfig, MemoryConfig
from lutterfly.golden.engines import MAC, MAXIMUM, EngineConfigs
from lutterfly.golden.link.frames import LEAST_BIT_TIME, PARTS
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.parts.pipeline import ECP5
from lutterfly.hdl.top_uart import TopUart
from lutterfly.host import InferenceSession
from lutterfly.host.quantize import quantize
from lutterfly.host.transports.link import LinkTransport
from lutterfly.host.transports.twin import PinsLine, netlist_pins
from lutterfly.synth import bitstream, flow
from lutterfly.synth.flow import multipliers

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


pytestmark = needs_tools
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


def runs_a_digit(
    config: Config, name: str, mhz: float, model: bytes, folder: Path, *, is_pumped: bool = False
) -> Counter[str]:
    """Compare the last digits; the netlist's cells by type."""
    board = dataclasses.replace(BOARDS[name], core_mhz=mhz)
    steps: list[str] = []
    netlist = flow.map_cells(
        bitstream.top_of(board, TopUart(config, board.core_hz), is_pumped=is_pumped),
        folder,
        bitstream.board_device(board),
        steps.append,
        platform=dataclasses.replace(ECP5, is_pumped=is_pumped),
    )
    assert steps == ["elaborate", "synthesise"]
    line = PinsLine(netlist_pins(netlist, config, board.core_hz, cache_root=folder))
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


@pytest.mark.regress
@pytest.mark.long
def test_a_small_boards_netlist(tmp_path: Path) -> None:
    """With multipliers that work once and twice a cycle."""
    cells = runs_a_digit(SMALL, "ulx3s-25f", SLOW_MHZ, small_digits(), tmp_path, is_pumped=True)
    assert cells["MULT18X18D"] == multipliers(SMALL) - SMALL.array.lanes
    assert min(cells[kind] for kind in ("LUT4", "CCU2C", "TRELLIS_FF", "TRELLIS_DPR16X4", "DP16KD", "MULT18X18D")) > 0


@pytest.mark.regress
@pytest.mark.long
def test_the_netlist_of_the_largest_board(tmp_path: Path) -> None:
    board = BOARDS["ulx3s-85f"]
    runs_a_digit(PRESETS[board.preset], board.name, board.core_mhz, small_digits(), tmp_path)
