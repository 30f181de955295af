"""What a user hands in wrongly is refused by the command line in one line that names place and remedy, exit code 2."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.networks.generated import TINY, Maker
from lutterfly.examples import digits
from lutterfly.host.command.main import main
from lutterfly.host.model.arrays import TensorInfo, assign

MODEL = digits.model_path("qop")


def maker(shape: tuple[int, ...], form: str = "qop") -> Maker:
    made = Maker(np.random.default_rng(0), form, False, TINY)
    made.start(shape)
    return made


def convolved(form: str = "qop") -> Maker:
    made = maker((1, 3, 6, 6), form)
    made.product("Conv", (4, 3, 3, 3), 0, (1, 4, 6, 6), pads=[1, 1, 1, 1])
    return made


def assert_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and nothing but one line that matches ``message`` as a whole, in both forms."""
    assert main([*words, "--json"]) == 2
    shown = capsys.readouterr()
    assert json.loads(shown.out).keys() == {"error"}
    error = json.loads(shown.out)["error"]
    assert re.fullmatch(message, error), error
    assert main(words) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", f"lutterfly: {error}\n")


def no_model() -> bytes:
    return b"%PDF-1.7 a picture of a network"


def truncated_model() -> bytes:
    return MODEL.read_bytes()[:9000]


def float_model() -> bytes:
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", infos[:1], infos[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()


def softmax_in_the_middle() -> bytes:
    made = convolved("qdq")
    softmax = made.node("Softmax", [made.dequantised()], axis=1)
    made.quantise(softmax, *made.quantisation(1 / 256), made.shape)
    made.product("Conv", (2, 4, 1, 1), 0, (1, 2, 6, 6))
    return made.serialise()


def weights_with_a_zero_point() -> bytes:
    made = convolved()
    name = next(name for name in made.constants if name.startswith("wz"))
    made.constants[name] = np.full_like(made.constants[name], 3)
    return made.serialise()


def demo(change: Callable[[onnx.GraphProto], object]) -> bytes:
    """The demo network with a change."""
    model = onnx.load(digits.model_path("qdq"))
    change(model.graph)
    return model.SerializeToString()


def with_input(kind: onnx.ValueInfoProto) -> bytes:
    """The demo network with another input that goes straight to an output."""

    def change(graph: onnx.GraphProto) -> None:
        graph.input.append(kind)
        graph.node.append(helper.make_node("Identity", [kind.name], ["same"], "same"))
        graph.output.append(onnx.ValueInfoProto(name="same", type=kind.type))

    return demo(change)


def texts() -> bytes:
    return with_input(helper.make_tensor_value_info("title", TensorProto.STRING, ["batch"]))


def bfloat16() -> bytes:
    return with_input(helper.make_tensor_value_info("extra", TensorProto.BFLOAT16, ["batch", 3]))


def sequence() -> bytes:
    return with_input(helper.make_tensor_sequence_value_info("list", TensorProto.FLOAT, ["batch", 3]))


def huge(*sizes: int) -> Callable[[], bytes]:
    def change(graph: onnx.GraphProto) -> None:
        graph.input[0].CopyFrom(helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["batch", *sizes]))
        del graph.value_info[:]

    return lambda: demo(change)


def single_number() -> bytes:
    def change(graph: onnx.GraphProto) -> None:
        graph.node.append(helper.make_node("ReduceSum", ["logits"], ["total"], "sum_up", keepdims=0))
        graph.output.append(helper.make_tensor_value_info("total", TensorProto.FLOAT, []))

    return demo(change)


def damaged_text(text: bytes) -> Callable[[], bytes]:
    return lambda: digits.model_path("qdq").read_bytes().replace(text, b"\xff" + text[1:])


def network_larger_than_the_memories() -> bytes:
    """One pixel is larger than the feature memory."""
    made = maker((1, 70_000, 1, 1))
    made.product("Conv", (2, 70_000, 1, 1), 0, (1, 2, 1, 1))
    return made.serialise()


@pytest.mark.sampled(10)
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (no_model, r"must be an ONNX file.*; export the network to ONNX"),
        (truncated_model, r"the ONNX file is truncated or damaged after 9000 bytes; export or copy it again"),
        (float_model, r"is a float model; quantise the float model with `lutterfly quantize .*`"),
        (
            softmax_in_the_middle,
            r"Softmax '.*' between Conv '.*' and Conv '.*' is not supported: .*; quantise the float .*, or end .*",
        ),
        (
            weights_with_a_zero_point,
            r"the zero point of the weights 'w_\d+' of QLinearConv '.*' must be 0, not 3; quantise with symmetric .*",
        ),
        (texts, "input 'title' must be a tensor of numbers, not string; take it out of the network, or convert it .*"),
        (bfloat16, "input 'extra' must be a tensor of numbers, not bfloat16; take it out of the network, or .*"),
        (sequence, "input 'list' must be a tensor of numbers, not a sequence; take it out of the network, or .*"),
        (
            huge(1, 1 << 31, 1 << 31),
            (
                r"input 'pixels' must have at most 268,435,456 elements, which the simulated accelerator's memory "
                r"holds, not 4,611,686,018,427,387,904; export it for smaller inputs"
            ),
        ),
        (huge(1, 1 << 14, (1 << 14) + 1), r"input 'pixels' must have at most 268,435,456 elements, .*"),
        (huge(1, -5, 8), r"dimension 2 of input 'pixels' must be fixed, not -5; only the batch may be dynamic: .*"),
        (
            single_number,
            "output 'total' must have a batch dimension, and ReduceSum 'sum_up' gives a single number; keep its .*",
        ),
        (damaged_text(b"pixels"), r"graph\.node\[\d+\]\.\w+(\[\d+\])? must be a text in UTF-8, and is not: the .*"),
        (damaged_text(b"node_conv2d"), r"graph\.\w+\[\d+\]\.\w+(\[\d+\])? must be a text in UTF-8, and is not: .*"),
        (network_larger_than_the_memories, r".* bytes of .* memory.*; choose a larger --config"),
    ],
)
def test_models(make: Callable[[], bytes], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(make())
    assert_refused(["check", str(path)], rf"({re.escape(str(path))}: )?{message}", capsys)


INPUT = np.zeros((1, 1, 8, 8), np.float32)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("image=", INPUT, r"input must be one of pixels, not image; for a file with = in its name: --input .*"),
        ("", INPUT[0], r"input pixels must have the shape \[batch, 1, 8, 8\], not \[1, 8, 8\]"),
        ("pixels=", INPUT.astype(np.int8), r"input pixels must be an array of float32, not int8"),
    ],
)
def test_inputs(name: str, array: np.ndarray, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", array)
    path = tmp_path / "x.npy"
    place = "" if name == "image=" else rf"{re.escape(str(path))}: "
    assert_refused(["run", str(MODEL), "--input", f"{name}{path}"], place + message, capsys)


@pytest.mark.regress
def test_files_and_names_may_contain_an_equals_sign(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rate=0.1").mkdir()
    for path in ("rate=0.1/x.npy", "a=b.npy"):
        np.save(tmp_path / path, INPUT[0])
        for word in (path, str(tmp_path / path), f"pixels={path}"):
            place = re.escape(word.removeprefix("pixels="))
            assert_refused(
                ["run", str(MODEL), "--input", word], rf"{place}: input pixels must have the shape .*", capsys
            )
    assert_refused(
        ["run", str(MODEL), "--input", "c=d.npy"],
        "input must be one of pixels, not c; for a file with = in its name: --input pixels=c=d.npy",
        capsys,
    )
    np.save(tmp_path / "x.npy", INPUT)
    output = "output must be one of logits, not d; for a file with = in its name: --output logits=d=e.npy"
    assert_refused(["run", str(MODEL), "--input", "x.npy", "--output", "d=e.npy"], output, capsys)
    infos = [TensorInfo(name, [1], "tensor(int8)") for name in ("a", "a=b")]
    assert assign("input", ["a=b=c.npy", "a=c.npy"], infos) == {"a=b": "c.npy", "a": "c.npy"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("command", ["run", "verify", "check"])
def test_programs(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, array = tmp_path / "digits.program", tmp_path / "x.npy"
    np.save(array, INPUT)
    assert main(["compile", str(MODEL), "-o", str(program), "--config", "tiny"]) == 0
    capsys.readouterr()
    words = [command, str(program), *(["--input", str(array)] if command == "run" else [])]
    place = re.escape(str(program))
    other = r"program must be for the configuration of this hardware .*, not for tiny .*; compile the model again .*"
    assert_refused(words, f"{place}: {other}", capsys)
    program.write_bytes(program.read_bytes()[:-1000])
    truncated = r"program must have \d+ bytes, not \d+: the file is truncated or damaged; compile again"
    assert_refused([*words, "--config", "tiny"], f"{place}: {truncated}", capsys)


@pytest.mark.regress
def test_operators_on_the_host_that_fail_on_an_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They did not on the zeros with which the model was measured."""

    def change(graph: onnx.GraphProto) -> None:
        graph.initializer.append(numpy_helper.from_array(np.zeros(4, np.float32), "table"))
        graph.node.extend(
            [
                helper.make_node("Cast", ["pixels"], ["places"], "to_places", to=TensorProto.INT64),
                helper.make_node("Gather", ["table", "places"], ["looked_up"], "look_up"),
            ]
        )
        graph.output.append(helper.make_tensor_value_info("looked_up", TensorProto.FLOAT, ["batch", 1, 8, 8]))

    (tmp_path / "net.onnx").write_bytes(demo(change))
    np.save(tmp_path / "x.npy", np.full_like(INPUT, 9))
    words = ["run", str(tmp_path / "net.onnx"), "--input", str(tmp_path / "x.npy"), "--config", "tiny"]
    message = "what runs on the host must be defined for every input, and is not for this one: .*'look_up'.*"
    assert_refused(words, message, capsys)
