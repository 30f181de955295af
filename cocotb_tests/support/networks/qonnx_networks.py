"""QONNX networks for tests, written with onnx.helper, and their execution by qonnx itself."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.oracles.exactness import run_part
from lutterfly.host.frontend import import_model
from lutterfly.host.frontend.qonnx import rewrite
from lutterfly.host.graph import Graph
from lutterfly.host.graph.evaluate import evaluate, from_onnx, to_onnx
from lutterfly.host.model import reference
from lutterfly.host.model.model import Model

DOMAIN = "qonnx.custom_op.general"


class QonnxNetwork:
    """Appends operators to a model; every method returns the name of the new tensor.

    Parameters
    ----------
    shape : sequence of int
        Of the float input ``x`` without the batch.
    seed : int
    domain : str
        Of the quantisers.
    dtype : int
        Of the input.
    """

    def __init__(
        self,
        shape: Sequence[int],
        *,
        seed: int = 0,
        opset: int = 17,
        domain: str = DOMAIN,
        dtype: int = TensorProto.FLOAT,
    ):
        self.rng = np.random.default_rng(seed)
        self.shapes: dict[str, tuple[int, ...]] = {"x": tuple(shape)}
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._opset, self._domain, self._dtype = opset, domain, dtype

    def constant(self, value: object, dtype: type = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def add(self, operator: str, *inputs: str, shape: Sequence[int] | None = None, domain: str = "", **given) -> str:
        number = len(self.nodes)
        output = f"{operator.lower()}_{number}"
        self.nodes.append(helper.make_node(operator, inputs, [output], f"{operator}_{number}", domain=domain, **given))
        self.shapes[output] = tuple(shape if shape is not None else self.shapes.get(inputs[0], ()))
        return output

    def bipolar(self, x: str, scale: object = 1.0) -> str:
        return self.add("BipolarQuant", x, self.constant(scale), domain=self._domain)

    def quant(
        self,
        x: str,
        scale: object = 2.0**-5,
        zero_point: float = 0.0,
        bits: float = 8.0,
        *,
        signed: int = 1,
        narrow: int = 0,
        mode: str = "ROUND",
    ) -> str:
        operands = [self.constant(value) for value in (scale, zero_point, bits)]
        given = {"signed": signed, "narrow": narrow, "rounding_mode": mode}
        return self.add("Quant", x, *operands, domain=self._domain, **given)

    def signs(self, shape: Sequence[int], scale: object = 1.0) -> str:
        """Binary weights."""
        return self.bipolar(self.constant(self.rng.normal(size=shape)), scale)

    def integers(self, shape: Sequence[int], scale: object = 2.0**-6, bits: float = 8.0) -> str:
        """Weights of several bits."""
        values = self.rng.normal(size=shape) * np.float32(np.max(scale)) * 2 ** (bits - 2)
        return self.quant(self.constant(values), scale, bits=bits, narrow=1)

    def powers(self, count: int) -> np.ndarray:
        """A scale for each channel, powers of two."""
        return 2.0 ** self.rng.integers(-6, 2, count)

    def conv(
        self,
        x: str,
        weights: str,
        *,
        pads: Sequence[int] = (0, 0, 0, 0),
        strides: Sequence[int] = (1, 1),
        dilations: Sequence[int] = (1, 1),
        group: int = 1,
        bias: np.ndarray | None = None,
    ) -> str:
        size, kernel = self.shapes[x][1:], self.shape_of(weights)
        rank = len(size)
        spatial = [
            (size[axis] + pads[axis] + pads[axis + rank] - dilations[axis] * (kernel[2 + axis] - 1) - 1)
            // strides[axis]
            + 1
            for axis in range(rank)
        ]
        operands = [x, weights] + ([] if bias is None else [self.constant(bias)])
        given = {"pads": pads, "strides": strides, "dilations": dilations, "group": group}
        return self.add("Conv", *operands, shape=(kernel[0], *spatial), **given)

    def shape_of(self, weights: str) -> tuple[int, ...]:
        """Of what a quantiser of weights gives."""
        node = next(node for node in self.nodes if node.output[0] == weights)
        return next(tuple(item.dims) for item in self.constants if item.name == node.input[0])

    def linear(self, x: str, weights: str, form: str = "Gemm", bias: np.ndarray | None = None) -> str:
        """As Gemm, or as Transpose and MatMul."""
        outputs = self.shape_of(weights)[0]
        if form == "Gemm":
            operands = [x, weights] + ([] if bias is None else [self.constant(bias)])
            return self.add("Gemm", *operands, shape=(outputs,), transB=1)
        turned = self.add("Transpose", weights, shape=self.shape_of(weights)[::-1], perm=[1, 0])
        product = self.add("MatMul", x, turned, shape=(outputs,))
        return product if bias is None else self.add("Add", product, self.constant(bias))

    def norm(self, x: str, spread: float) -> str:
        """Batch normalisation of what has this standard deviation, half of its scales negative."""
        channels = self.shapes[x][0]
        scale = self.rng.uniform(0.3, 2, channels) * self.rng.choice([-1, 1], channels)
        numbers = (
            scale,
            self.rng.normal(size=channels) / 2,
            self.rng.normal(size=channels) * spread / 2,
            self.rng.uniform(0.5, 1.5, channels) * spread**2,
        )
        return self.add("BatchNormalization", x, *map(self.constant, numbers))

    def scalar(self, operator: str, x: str, value: object) -> str:
        return self.add(operator, x, self.constant(value))

    def pool(self, x: str, kernel: int = 2, stride: int = 2, pads: Sequence[int] = (0, 0, 0, 0)) -> str:
        channels, *size = self.shapes[x]
        spatial = [(size[axis] + pads[axis] + pads[axis + 2] - kernel) // stride + 1 for axis in range(2)]
        given = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": pads}
        return self.add("MaxPool", x, shape=(channels, *spatial), **given)

    def flatten(self, x: str, operator: str = "Flatten") -> str:
        size = math.prod(self.shapes[x])
        if operator == "Flatten":
            return self.add("Flatten", x, shape=(size,))
        return self.add("Reshape", x, self.constant([1, size], np.int64), shape=(size,))

    def model(self, *outputs: str, batch: int | str = 1) -> bytes:
        opsets = [helper.make_opsetid("", self._opset), helper.make_opsetid(self._domain, 1)]
        graph = helper.make_graph(
            self.nodes,
            "network",
            [helper.make_tensor_value_info("x", self._dtype, (batch, *self.shapes["x"]))],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, (batch, *self.shapes[name])) for name in outputs],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def executed_by_qonnx(data: bytes, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs as qonnx computes them, node by node."""
    with _quiet():
        from qonnx.core.modelwrapper import ModelWrapper  # noqa: PLC0415
        from qonnx.core.onnx_exec import execute_onnx  # noqa: PLC0415
        from qonnx.transformation.infer_shapes import InferShapes  # noqa: PLC0415

        model = ModelWrapper(onnx.load_from_string(data)).transform(InferShapes())
        return execute_onnx(model, feeds)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """qonnx warns of its own calls."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def random_feeds(data: bytes, seed: int, spread: float = 1.0) -> dict[str, np.ndarray]:
    """Numbers that fill the range of the first quantiser, ties and the signs of zero among them."""
    graph = onnx.load_from_string(data).graph
    shape = [max(dimension.dim_value, 1) for dimension in graph.input[0].type.tensor_type.shape.dim]
    rng = np.random.default_rng(seed)
    dtype = helper.tensor_dtype_to_np_dtype(graph.input[0].type.tensor_type.elem_type)
    if dtype != np.float32:
        limits = np.iinfo(dtype)
        return {graph.input[0].name: rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)}
    values = rng.normal(size=shape) * spread
    special = rng.choice([0.0, -0.0, 2.0**-6, 3 * 2.0**-6, -5 * 2.0**-6, 100.0, -100.0], shape)
    return {graph.input[0].name: np.where(rng.random(shape) < 0.2, special, values).astype(np.float32)}


def assert_same(data: bytes, *, samples: int = 2, spread: float = 1.0, qonnx: bool = True) -> Graph:
    """qonnx, ONNX Runtime on what the model is rewritten to, and the imported graph give the same bytes."""
    written = rewrite(Model(data), "model")
    onnx.checker.check_model(written.data, full_check=True)
    assert rewrite(written, "model") is written
    graph = import_model(data)
    assert graph.model == written
    for seed in range(samples):
        feeds = random_feeds(data, seed, spread)
        found = assert_graph(graph, feeds)
        if qonnx:
            for name, wanted in executed_by_qonnx(data, feeds).items():
                np.testing.assert_array_equal(found[name], wanted.astype(np.float32), name)
    return graph


def assert_graph(graph: Graph, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The graph's tensors and outputs are those of ONNX Runtime, which are returned."""
    expected = reference.run(graph.model, feeds)
    values = dict(feeds) | run_part(graph.head, feeds)
    views = {name: graph.tensors[name].views[0] for name in graph.inputs}
    codes = evaluate(
        graph, {name: from_onnx(view, graph.tensors[name].shape, values[view.name]) for name, view in views.items()}
    )
    values |= {
        view.name: to_onnx(view, codes[tensor.name]) for tensor in graph.tensors.values() for view in tensor.views
    }
    values |= run_part(graph.tail, values)
    outputs = {output.name for output in graph.model.proto.graph.output}
    compared = [name for name in values if name in expected]
    assert outputs <= set(compared)
    # The codes that layers exchange, apart from what the model does not have.
    assert len(compared) > len(outputs) + len(feeds)
    for name in compared:
        assert values[name].dtype == expected[name].dtype
        np.testing.assert_array_equal(values[name], expected[name], name)
    return expected
