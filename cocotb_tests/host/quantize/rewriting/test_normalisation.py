"""Normalisation of what has different sizes: in two passes, as exact as onnxruntime.quantization with it in float."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process

from cocotb_tests.support.oracles.exactness import needs_reference
from lutterfly.host import InferenceSession
from lutterfly.host.model.executed import open_session
from lutterfly.host.model.model import Model
from lutterfly.host.quantize import quantize
from lutterfly.host.quantize.float_model import prepare
from lutterfly.host.quantize.rewriting import float_graph
from lutterfly.host.quantize.rewriting import normalisation as passes
from lutterfly.host.quantize.rewriting.normalisation import Passes, Spelling, best_spelling
from lutterfly.host.quantize.static_quantisation import relative_errors

COUNT = 20
TOKENS, FEATURES, CHANNELS, SIZES = 8, 16, 8, (7, 6)
Samples = dict[str, np.ndarray]


def network(steps: Sequence[tuple], shape: Sequence[int], outputs: Sequence[int]) -> onnx.ModelProto:
    """Operators in a row, each with its constants and attributes."""
    nodes, held, last = [], [], "x"
    for place, (operator, constants, attributes) in enumerate(steps):
        names = [f"c{place}_{number}" for number in range(len(constants))]
        for name, array in zip(names, constants, strict=True):
            stored = array if array.dtype.kind == "i" else array.astype(np.float32)
            held.append(numpy_helper.from_array(stored, name))
        nodes.append(helper.make_node(operator, [last, *names], [f"t{place}"], f"{operator}_{place}", **attributes))
        last = f"t{place}"
    nodes[-1].output[0] = "y"
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *sizes])
        for name, sizes in (("x", shape), ("y", outputs))
    ]
    graph = helper.make_graph(nodes, "network", ends[:1], ends[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def tokens(seed: int, spread: float, offset: float = 0.0, epsilon: float = 1e-5) -> tuple[onnx.ModelProto, Samples]:
    """Tokens of different sizes, with means of ``offset``: a product, layer normalisation, a product."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(0, FEATURES**-0.5, (FEATURES, FEATURES))
    steps = [
        ("MatMul", [weights - weights.mean(axis=1, keepdims=True)], {}),
        ("Add", [np.full(FEATURES, offset)], {}),
        ("LayerNormalization", [*rng.uniform(0.5, 1.5, (2, FEATURES))], {"epsilon": epsilon}),
        ("MatMul", [rng.normal(0, FEATURES**-0.5, (FEATURES, 6))], {}),
    ]
    sizes = np.exp(spread * rng.normal(size=(COUNT, TOKENS, 1)))
    values = {"x": (rng.normal(size=(COUNT, TOKENS, FEATURES)) * sizes).astype(np.float32)}
    return network(steps, (TOKENS, FEATURES), (TOKENS, 6)), values


def maps(seed: int, spread: float, groups: int = CHANNELS, epsilon: float = 1e-5) -> tuple[onnx.ModelProto, Samples]:
    """Channels of different sizes: a convolution, instance or group normalisation, a convolution."""
    rng = np.random.default_rng(seed)
    factors = np.repeat(np.exp(spread * np.linspace(-1, 1, groups)), CHANNELS // groups)
    shapes = np.array([0, groups, -1]), np.array([0, CHANNELS, *SIZES])
    normalisation = ("InstanceNormalization", [np.ones(groups), np.zeros(groups)], {"epsilon": epsilon})
    steps = [
        ("Conv", [rng.normal(0, 0.2, (CHANNELS, 3, 3, 3))], {"pads": [1, 1, 1, 1]}),
        ("Relu", [], {}),
        ("Mul", [factors.reshape(-1, 1, 1)], {}),
        *([("Reshape", [shapes[0]], {}), normalisation, ("Reshape", [shapes[1]], {})]),
        ("Conv", [rng.normal(0, CHANNELS**-0.5, (4, CHANNELS, 1, 1))], {}),
    ]
    if groups == CHANNELS:
        steps[3:6] = [normalisation]
    values = {"x": rng.normal(size=(COUNT, 3, *SIZES)).astype(np.float32)}
    return network(steps, (3, *SIZES), (4, *SIZES)), values


def roots(seed: int, spread: float, epsilon: float = 1e-5) -> tuple[onnx.ModelProto, Samples]:
    """The same tokens, which an RMS normalisation that is written out divides by the root of the mean of squares."""
    model, values = tokens(seed, spread, epsilon=epsilon)
    first, added, norm, last = model.graph.node
    scale = norm.input[1]
    source = added.output[0]
    written = [
        helper.make_node("Mul", [source, source], ["square"]),
        helper.make_node("ReduceMean", ["square"], ["mean"], axes=[-1]),
        helper.make_node("Add", ["mean", "epsilon"], ["positive"]),
        helper.make_node("Sqrt", ["positive"], ["root"]),
        helper.make_node("Div", [source, "root"], ["quotient"]),
        helper.make_node("Mul", ["quotient", scale], [norm.output[0]]),
    ]
    nodes = [first, added, *written, last]
    held = [
        *(tensor for tensor in model.graph.initializer if tensor.name != norm.input[2]),
        numpy_helper.from_array(np.float32(epsilon), "epsilon"),
    ]
    graph = helper.make_graph(nodes, "network", model.graph.input, model.graph.output, held)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=8), values


class Reader(quantization.CalibrationDataReader):
    """Samples one by one."""

    def __init__(self, values: np.ndarray) -> None:
        self.feeds = iter([{"x": value[None]} for value in values])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.feeds, None)


def static(model: onnx.ModelProto, values: Samples, folder: Path) -> bytes:
    """By ONNX Runtime's own quantisation, which leaves the normalisation in float."""
    source, prepared, target = (folder / f"{name}.onnx" for name in ("float", "prepared", "static"))
    onnx.save(model, source)
    quant_pre_process(source, prepared, skip_symbolic_shape=True)
    reader = Reader(values["x"])
    quantization.quantize_static(prepared, target, reader, quant_format=quantization.QuantFormat.QDQ, per_channel=True)
    return target.read_bytes()


def error(model: onnx.ModelProto, data: bytes, values: Samples) -> float:
    (found,) = relative_errors(Model.written(model), Model(data), values).values()
    return found


CASES = {
    "tokens": lambda seed: tokens(seed, 0.8),
    "tokens of little": lambda seed: tokens(seed, 0.4),
    "tokens far from 0": lambda seed: tokens(seed, 0.4, 5.0),
    "roots of tokens": lambda seed: roots(seed, 0.8),
    "channels": lambda seed: maps(seed, 1.0),
    "channels of little": lambda seed: maps(seed, 0.5),
    "groups": lambda seed: maps(seed, 1.0, 4),
}


@needs_reference
@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("case", CASES)
def test_within_3_db_of_the_normalisation_in_float(case: str, seed: int, tmp_path: Path) -> None:
    model, values = CASES[case](seed)
    data = quantize(model.SerializeToString(), values)
    ours, floating = error(model, data, values), error(model, static(model, values, tmp_path), values)
    assert 20 * np.log10(ours / floating) < 3
    feeds = {"x": values["x"][:1]}
    expected = open_session(Model(data)).run(None, feeds)[0]
    np.testing.assert_array_equal(InferenceSession(data, "tiny").run(None, feeds)[0], expected)


@needs_reference
@pytest.mark.parametrize("case", ["tokens", "channels"])
def test_one_pass_loses_more(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, values = CASES[case](0)
    monkeypatch.setattr(passes, "best_spelling", lambda rows, epsilon, **_: Spelling())
    ours = error(model, quantize(model.SerializeToString(), values), values)
    assert 20 * np.log10(ours / error(model, static(model, values, tmp_path), values)) > 6


@needs_reference
def test_one_pass_loses_more_of_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime.quantization has no scales for them either, so that these are held against one another."""
    model, values = roots(0, 0.8)
    ours = error(model, quantize(model.SerializeToString(), values), values)
    monkeypatch.setattr(passes, "best_spelling", lambda rows, epsilon, **is_centred: Spelling(**is_centred))
    assert error(model, quantize(model.SerializeToString(), values), values) > 2 * ours


@needs_reference
@pytest.mark.parametrize("make", [lambda: tokens(0, 0.0), lambda: maps(0, 0.0, 4)])
def test_what_has_one_size_is_normalised_in_one_pass(make, tmp_path: Path) -> None:
    model, values = make()
    # Sparse maps have squares in parts.
    for node in model.graph.node:
        node.op_type = node.op_type.replace("Relu", "Tanh")
    with_samples, without = (prepare(model, "net", tmp_path, given)[0] for given in (values, None))
    assert [node.op_type for node in with_samples.graph.node] == [node.op_type for node in without.graph.node]


@pytest.mark.parametrize("epsilon", [1e-12, 1e-5, 0.1])
@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize("chosen", Passes)
@pytest.mark.parametrize("kind", ["tokens", "roots", "channels", "groups"])
def test_the_function_is_the_same(
    kind: str, chosen: Passes, in_parts: bool, epsilon: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With constant rows as well, of which epsilon alone keeps the variance from 0."""
    made = {
        "tokens": lambda: tokens(1, 1.0, epsilon=epsilon),
        "roots": lambda: roots(1, 1.0, epsilon=epsilon),
        "channels": lambda: maps(1, 1.0, epsilon=epsilon),
        "groups": lambda: maps(1, 1.0, 4, epsilon=epsilon),
    }
    model, values = made[kind]()
    values["x"][0, 0] = 0
    monkeypatch.setattr(
        passes, "best_spelling", lambda rows, epsilon, **is_centred: Spelling(chosen, in_parts, **is_centred)
    )
    prepared, found = prepare(model, "net", tmp_path, values)
    assert found
    sessions = [open_session(Model.written(each)) for each in (model, prepared)]
    for value in values["x"][:4]:
        wanted, given = (session.run(None, {"x": value[None]})[0] for session in sessions)
        np.testing.assert_allclose(given, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


def test_spellings_by_sizes_and_means() -> None:
    rng = np.random.default_rng(0)
    rows, sizes = rng.normal(size=(64, 32)), np.exp(rng.normal(size=(64, 1)))
    assert best_spelling(rows, 1e-5) == Spelling()
    assert best_spelling(rows * sizes, 1e-5) == Spelling(Passes.SCALED_FIRST)
    assert best_spelling(rows * sizes + 30, 1e-5).passes is Passes.CENTRED_FIRST
    # All that is small is made nothing of by such an epsilon.
    assert best_spelling(rows * sizes, 1e3) == Spelling()
    alone = Spelling(Passes.SCALED_FIRST, is_centred=False)
    assert best_spelling(rows * sizes, 1e-5, is_centred=False) == alone
    assert best_spelling(rows, 1e-5, is_centred=False) == Spelling(is_centred=False)
    assert best_spelling(np.ones((3, 4)), 1e-5) == Spelling()
    # Most squares of sparse rows have no codes.
    sparse = np.maximum(rng.laplace(size=(64, 256)) - 1, 0)
    assert best_spelling(sparse * sizes**0.2, 1e-5) == Spelling(in_parts=True)
    assert best_spelling(sparse * sizes, 1e-5) == Spelling(Passes.SCALED_FIRST, in_parts=True)


def test_rows_are_those_of_the_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an input and of what is computed; of many, some of every sample."""
    model, values = maps(0, 1.0)
    del model.graph.node[:3]
    model.graph.node[0].input[0] = "x"
    found = float_graph.normalised_rows(model, values)
    assert found.keys() == {("x", (2, 3))}
    np.testing.assert_array_equal(found["x", (2, 3)], values["x"].reshape(COUNT * 3, -1))
    monkeypatch.setattr(float_graph, "_MOST", COUNT * 42)
    np.testing.assert_array_equal(
        float_graph.normalised_rows(model, values)["x", (2, 3)],
        [value[index % 3].reshape(-1) for index, value in enumerate(values["x"])],
    )
    monkeypatch.undo()
    model, values = tokens(0, 0.5)
    ((key, rows),) = float_graph.normalised_rows(onnx.shape_inference.infer_shapes(model), values).items()
    assert key == ("t1", (2,))
    np.testing.assert_allclose(
        rows, (values["x"] @ numpy_helper.to_array(model.graph.initializer[0])).reshape(-1, FEATURES), atol=1e-5
    )
