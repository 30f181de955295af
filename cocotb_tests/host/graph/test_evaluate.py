"""Golden evaluation of a graph and the tables in it: ONNX Runtime's bytes of every integer tensor."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from cocotb_tests.support.networks.butterflies import fast_network
from cocotb_tests.support.networks.generated import FORMS, Limits, chain, layer
from cocotb_tests.support.oracles.exactness import assert_exact, needs_reference
from cocotb_tests.support.quantised.evaluation import evaluate_float
from cocotb_tests.support.quantised.graphs import random_arranged, random_binary_graph, random_fork, random_graph
from lutterfly.host.frontend import import_model
from lutterfly.host.graph import Graph, Layer, Pad, View, Window
from lutterfly.host.graph.evaluate import evaluate, from_onnx, outputs_of, to_onnx
from lutterfly.host.graph.geometry import from_codes, to_codes
from lutterfly.host.graph.tabulate import CODES, tabulate

KINDS = ("conv", "conv1d", "fc", "pool", "activation")


@pytest.mark.sampled(1)
@needs_reference
@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_single_layers(kind: str, form: str, unsigned: bool):
    for seed in range(6):
        generated = layer(kind, seed, form=form, unsigned=unsigned)
        assert_exact(generated.model, generated.feeds(seed))


@pytest.mark.regress
@needs_reference
@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_chains(form: str, unsigned: bool):
    for seed in range(10):
        generated = chain(seed, form=form, unsigned=unsigned)
        assert_exact(generated.model, generated.feeds(seed))


@needs_reference
@pytest.mark.regress
@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_many_large_models(form: str, unsigned: bool):
    for seed in range(100, 140):
        for kind in KINDS:
            generated = layer(kind, seed, form=form, unsigned=unsigned, limits=Limits())
            assert_exact(generated.model, generated.feeds(seed))
        generated = chain(seed, form=form, unsigned=unsigned, limits=Limits())
        assert_exact(generated.model, generated.feeds(seed))


@pytest.mark.parametrize("unsigned", [False, True])
def test_views_go_both_ways(unsigned: bool):
    codes = np.arange(-12, 12, dtype=np.int8).reshape(2, 3, 4)
    view = View("x", (1, 4, 2, 3), (2, 0, 1), unsigned)
    array = to_onnx(view, codes)
    assert array.dtype == (np.uint8 if unsigned else np.int8)
    assert int(array[0, 3, 1, 2]) == int(codes[1, 2, 3]) + (128 if unsigned else 0)
    np.testing.assert_array_equal(from_onnx(view, (2, 3, 4), array), codes)


def test_arrays_of_another_type_or_shape_are_refused():
    view = View("x", (1, 4, 2, 3), (2, 0, 1), unsigned=True)
    with pytest.raises(ValueError, match=r"^x must be uint8\[1, 4, 2, 3\], not int8\[1, 4, 6\]$"):
        from_onnx(view, (2, 3, 4), np.zeros((1, 4, 6), np.int8))


def test_inputs_of_another_name_or_shape_are_refused():
    graph = import_model(layer("fc", 0).model)
    shape = graph.tensors["x"].shape
    with pytest.raises(ValueError, match=r"^inputs must be \['x'\], not \['y'\]$"):
        evaluate(graph, {"y": np.zeros(shape, np.int8)})
    message = rf"^x must have the shape {re.escape(str(shape))}, not \(1,\)$"
    with pytest.raises(ValueError, match=message):
        evaluate(graph, {"x": np.zeros(1, np.int8)})


def test_a_kind_of_layer_must_say_what_it_is_called_and_what_it_computes() -> None:
    class Unknown(Layer):
        pass

    with pytest.raises(TypeError, match=r"abstract methods '?evaluate'?, '?kind'?"):
        Unknown("node", ("x",), "y")


def test_a_border_is_called_a_border():
    """Also in programs, which is what reports show: it is no depthwise convolution of the network's."""
    layer = Pad("pad", ("x",), "y", window=Window((1, 1), pads=(1, 1, 1, 1)), channels=3)
    assert layer.kind((4, 4, 3), (6, 6, 3)) == "border"


GRAPHS = {"layers": random_graph, "forks": random_fork, "arranged": random_arranged, "binary": random_binary_graph}


def fast_graph(seed: int) -> Graph:
    return import_model(fast_network(seed)[0])


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("kind", [*GRAPHS, "fast"])
def test_several_samples_have_the_bytes_of_each(kind: str, count: int) -> None:
    """Whatever lies beside them: all tensors of all samples, and no sample is another one."""
    for seed in range(4):
        graph = GRAPHS.get(kind, fast_graph)(seed)
        rng = np.random.default_rng(seed)
        inputs = {name: rng.integers(-128, 128, (count, *graph.tensors[name].shape), np.int8) for name in graph.inputs}
        together = evaluate(graph, inputs)
        for sample in range(count):
            alone = evaluate(graph, {name: codes[sample] for name, codes in inputs.items()})
            assert together.keys() == alone.keys()
            for name, codes in alone.items():
                np.testing.assert_array_equal(together[name][sample], codes, err_msg=f"{seed}: {name}")
        outputs = outputs_of(graph, [[codes[sample] for codes in inputs.values()] for sample in range(count)])
        for sample, name in np.ndindex(count, len(graph.outputs)):
            np.testing.assert_array_equal(outputs[sample][name], together[graph.outputs[name]][sample])
            assert outputs[sample][name].shape == graph.tensors[graph.outputs[name]].shape


@pytest.mark.parametrize("kind", GRAPHS)
def test_several_samples_have_the_bytes_of_plain_loops(kind: str) -> None:
    for seed in range(20, 24):
        graph, rng = GRAPHS[kind](seed), np.random.default_rng(seed)
        samples = [
            {name: rng.integers(-128, 128, graph.tensors[name].shape, np.int8) for name in graph.inputs}
            for _ in range(3)
        ]
        found = evaluate(graph, {name: np.stack([sample[name] for sample in samples]) for name in graph.inputs})
        for number, sample in enumerate(samples):
            for name, codes in evaluate_float(graph, sample).items():
                np.testing.assert_array_equal(found[name][number], codes, err_msg=f"{seed}: {name}")


# Transfer tables: ONNX Runtime's result for every code, and none where it depends on more than the code.


def model(operator: str, dtype: type, *, scale: float, zero: int, **attributes) -> onnx.ModelProto:
    """DequantizeLinear, ``operator``, QuantizeLinear with the given scale and zero point at both ends."""
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["a"]),
        helper.make_node(operator, ["a"], ["b"], **attributes),
        helper.make_node("QuantizeLinear", ["b", "scale", "zero"], ["y"]),
    ]
    if operator == "CumSum":
        nodes[1].input.append("axis")
    values = {"scale": np.float32(scale), "zero": np.array(zero, dtype), "axis": np.int64(0)}
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ends = [[helper.make_tensor_value_info(name, code, ["n"])] for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", *ends, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(("operator", "function"), [("Tanh", np.tanh), ("Neg", np.negative), ("Abs", np.abs)])
def test_a_table_holds_the_quantised_function(dtype: type, operator: str, function):
    zero, scale = 3, np.float32(1 / 64)
    part = model(operator, dtype, scale=scale, zero=zero if dtype == np.int8 else zero + 128)
    table = tabulate(part)
    values = function((CODES.astype(np.float64) - zero) * scale) / scale
    assert (table.dtype, table.shape) == (np.int8, (256,))
    np.testing.assert_array_equal(table, np.clip(np.rint(values) + zero, -128, 127))


def test_a_result_that_depends_on_the_position_is_refused():
    with pytest.raises(
        ValueError,
        match=r"^ONNX Runtime gives -?\d+ or -?\d+ for code -?\d+, depending on its "
        "position in the tensor$",
    ):
        tabulate(model("CumSum", np.int8, scale=1.0, zero=0))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_codes_and_elements_are_inverse(dtype: type):
    elements = from_codes(CODES, np.dtype(dtype))
    assert elements.dtype == dtype
    assert elements.astype(int).tolist() == list(range(-128, 128) if dtype == np.int8 else range(256))
    np.testing.assert_array_equal(to_codes(elements), CODES)
