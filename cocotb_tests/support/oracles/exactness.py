"""Import a model, evaluate it with the golden functions and compare every integer tensor with ONNX Runtime's.

A generated network on which something fails is kept as a regression.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from hypothesis import HealthCheck, settings
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.networks.generated import Generated, Maker
from lutterfly.golden.numerics.addition import PAIRS
from lutterfly.host.frontend import ModelError, describe, import_model
from lutterfly.host.graph import Graph
from lutterfly.host.graph.evaluate import evaluate, from_onnx, to_onnx
from lutterfly.host.model import executed, reference, runtime
from lutterfly.host.model.model import Model
from lutterfly.host.session.compare import Verification

# Keeps generated networks on which something failed: hypothesis shrinks them, and the smallest is a regression.

#: Every network here is tried by ``test_generated_networks.py`` ever after. Give a new one a name that says what was
#: wrong, and commit it with what makes it right.
REGRESSIONS = Path(__file__).parents[2] / "regressions"
#: In the file, where it is to be tried on another accelerator than the presets: its configuration.
CONFIG_KEY = "lutterfly.config"
#: A slow machine is no failure, and neither is a network that is slow to draw. Of several failures one is shrunk, which
#: is executed once more at the end: so what is kept is the smallest.
PATIENT = settings(deadline=None, suppress_health_check=list(HealthCheck), print_blob=True, report_multiple_bugs=False)


@contextlib.contextmanager
def kept(network: Generated, name: str, folder: Path = REGRESSIONS) -> Iterator[None]:
    """Write the network to ``folder`` if the body fails, over the one that failed before under this name."""
    try:
        yield
    except Exception as error:
        path = folder / f"failing_{name}.onnx"
        path.write_bytes(network.model)
        error.add_note(f"{network.text}; kept as {path}")
        raise


needs_reference = pytest.mark.skipif(runtime.probe() is not None, reason=str(runtime.probe()))


def differing(data: bytes, feeds: Mapping[str, np.ndarray]) -> tuple[Graph, dict[str, int]]:
    """The graph, and the differing bytes of each integer tensor of the ONNX file that the graph covers."""
    graph = import_model(data)
    return graph, differing_in(graph, Model(data), feeds)


def differing_in(graph: Graph, model: Model, feeds: Mapping[str, np.ndarray]) -> dict[str, int]:
    """The differing bytes of each integer tensor of the model that the graph imported from it covers."""
    expected = reference.run(model, feeds)
    inputs, delivered = {}, {**expected, **run_part(graph.head, feeds)}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        inputs[name] = from_onnx(tensor.views[0], tensor.shape, delivered[tensor.views[0].name])
    values = evaluate(graph, inputs)
    assert values.keys() == graph.tensors.keys()
    differences = {}
    for tensor in graph.tensors.values():
        assert values[tensor.name].shape == tensor.shape
        for view in tensor.views:
            found = to_onnx(view, values[tensor.name])
            wanted = delivered[view.name]
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
            differences[view.name] = int(np.count_nonzero(found != wanted))
    return differences


def delivered_constants(graph: Graph) -> set[str]:
    """Names of the constants that the head gives, which ONNX Runtime does not show."""
    return {tensor.name for tensor in graph.head.proto.graph.initializer} if graph.head else set()


def assert_answers(data: bytes, feeds: Mapping[str, np.ndarray]) -> None:
    """The model's outputs, through head, golden functions and tail, are those of the plain model in ONNX Runtime."""
    graph, plain = import_model(data), executed.open_session(Model(data))
    values = dict(feeds) | run_part(graph.head, feeds)
    views = {name: graph.tensors[name].views[0] for name in graph.inputs}
    codes = evaluate(
        graph, {name: from_onnx(view, graph.tensors[name].shape, values[view.name]) for name, view in views.items()}
    )
    values |= {
        view.name: to_onnx(view, codes[tensor.name]) for tensor in graph.tensors.values() for view in tensor.views
    }
    values |= run_part(graph.tail, values)
    names = [output.name for output in plain.get_outputs()]
    for name, expected in zip(names, plain.run(names, dict(feeds)), strict=True):
        assert values[name].dtype == expected.dtype
        np.testing.assert_array_equal(values[name], expected, name)


def run_part(part: Model, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a head or tail computes; nothing where there is none."""
    if not part:
        return {}
    session = executed.open_host_part(part)
    names = [output.name for output in session.get_outputs()]
    inputs = {item.name: values[item.name] for item in session.get_inputs()}
    return dict(zip(names, session.run(names, inputs), strict=True))


def integer_tensors(data: bytes, feeds: Mapping[str, np.ndarray]) -> set[str]:
    """Names of the integer tensors that ONNX Runtime shows."""
    return _integer_tensors(Model(data), feeds)


def _integer_tensors(model: Model, feeds: Mapping[str, np.ndarray]) -> set[str]:
    return {name for name, value in reference.run(model, feeds).items() if value.dtype in (np.int8, np.uint8)}


def assert_exact(data: bytes, *samples: Mapping[str, np.ndarray], covered: bool = True) -> Graph:
    """No byte differs on any of the samples; with ``covered``, no integer tensor is left out either."""
    graph, model = import_model(data), Model(data)
    for feeds in samples:
        differences = differing_in(graph, model, feeds)
        assert not any(differences.values()), differences
        if covered:
            assert differences.keys() - delivered_constants(graph) == _integer_tensors(model, feeds)
    return graph


def assert_exact_on_codes(made: Maker, *, outputs: tuple[str, ...] = (), covered: bool = True) -> Graph:
    """The graph of what is made, which gives the right bytes on codes of every value."""
    limits = np.iinfo(made.dtype)
    samples = [
        np.random.default_rng(seed).integers(limits.min, limits.max + 1, made.input_shape, made.dtype)
        for seed in range(3)
    ]
    return assert_exact(made.serialise(outputs), *({"x": codes} for codes in samples), covered=covered)


def accepted(networks: Iterable[Generated], name: str, *, samples: int) -> int:
    """How many networks are accepted; in these no byte differs, of any tensor or answer.

    One that fails is kept under ``name``.
    """
    count = 0
    for network in networks:
        with kept(network, name):
            try:
                import_model(network.model)
            except ModelError:
                continue
            assert_exact(network.model, network.feeds(0), covered=False)
            for sample in range(1, samples):
                assert_answers(network.model, network.feeds(sample))
        count += 1
    return count


def assert_right(found: Verification) -> None:
    """No byte differs, on the simulated core neither, and all cycles are within the tolerance of the prediction."""
    assert not found.mismatched_bytes, [tensor for tensor in found.tensors if tensor.mismatched]
    assert found.bytes
    assert any(tensor.rtl is not None for tensor in found.tensors)
    assert found.is_right, [layer for layer in found.layers if not layer.is_right]


# What the layers of a graph are, in order: as classes, by the names of these, and as `describe` calls them.


def layer_types(graph: Graph) -> list[type]:
    """The class of each layer."""
    return [type(layer) for layer in graph.layers]


def layer_names(graph: Graph) -> list[str]:
    """The name of each layer's class."""
    return [layer.__name__ for layer in layer_types(graph)]


def described_kinds(graph: Graph) -> list[str]:
    """The kind of every operation, those of the host included."""
    return [row.kind for row in describe(graph)]


def tabled_names(graph: Graph) -> list[str]:
    """The name of each layer's class, and whether it has a table."""
    tables = [getattr(layer, "table", None) is not None for layer in graph.layers]
    return [name + " + table" * has_table for name, has_table in zip(layer_names(graph), tables, strict=True)]


# What ONNX Runtime's QLinear operators on two tensors make of every pair of codes.


def runtime_pairs(
    operator: str, scales: tuple[float, ...], zero_points: tuple[int, ...], *, unsigned: bool
) -> np.ndarray:
    """Codes int8[256, 256] of every pair; scales and zero points are those of both operands and of the result."""
    dtype, kind = (np.uint8, TensorProto.UINT8) if unsigned else (np.int8, TensorProto.INT8)
    shift = 128 if unsigned else 0
    constants = {f"s{i}": np.float32(scale) for i, scale in enumerate(scales)}
    constants |= {f"z{i}": np.array(zero + shift, dtype) for i, zero in enumerate(zero_points)}
    node = helper.make_node(operator, ["a", "s0", "z0", "b", "s1", "z1", "s2", "z2"], ["y"], domain="com.microsoft")
    a, b, y = (helper.make_tensor_value_info(name, kind, [256, 256]) for name in "aby")
    graph = helper.make_graph(
        [node], "pairs", [a, b], [y], [numpy_helper.from_array(value, name) for name, value in constants.items()]
    )
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    session = onnxruntime.InferenceSession(
        helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    )
    feeds = {name: (codes.astype(np.int16) + shift).astype(dtype) for name, codes in zip("ab", PAIRS, strict=True)}
    return (session.run(None, feeds)[0].astype(np.int16) - shift).astype(np.int8)
