"""A float ONNX network under construction: names as users have them, and samples with any number in front."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from hypothesis import assume
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

# Names that users' tensors and nodes have: none, twice the same, digits, other scripts, and what quantising makes.

Draw = Callable[[st.SearchStrategy], object]

#: What exporters, people and quantising call tensors.
_ODD = (
    *("x", "x_scale", "x_zero_point", "x_quantized", "x_QuantizeLinear_Output", "x_DequantizeLinear_Output"),
    *("y_QuantizeLinear_Input", "w_scale", "w_zero_point", "w_quantized", "x_mean", "x_normalised_square"),
    *("0", "1", "00", "12", "-1", "%0%", "%1%", "%2%_scale", "x[0:7, 0:16]", "a b", "a;a", "a/b.c:0", "{0}"),
    *("größe", "层", "ñ\u0303", "onnx::Conv_1", "model_1/a/b;model_1/a/b", "_quantized", "_scale", "_zero_point"),
)
NODE_NAMES = ("own", "none", "outputs", "own", "none", "outputs", "own", "none", "outputs", "all the same")


class Naming:
    """Draws names for one network; no two tensors have the same, as ONNX demands."""

    def __init__(self, draw: Draw):
        self._nodes = draw(st.sampled_from(NODE_NAMES))
        is_odd = draw(st.booleans())
        self._odd = list(draw(st.permutations(_ODD))) if is_odd else []
        self._count = 0
        self.text = f"nodes: {self._nodes}; tensors: {'odd' if is_odd else 'plain'}"

    def tensor(self) -> str:
        """A name that no other tensor has."""
        self._count += 1
        return self._odd.pop() if self._odd else f"t{self._count}"

    def node(self, operator: str, output: str) -> str:
        """A node's name; ONNX Runtime refuses two of one name."""
        return {
            "own": f"{operator}_{self._count}",
            "none": "",
            "outputs": output,
            "all the same": "node",
        }[self._nodes]


#: First dimensions as exporters write them: a symbol, nothing, Paddle's, one sample.
BATCHES = {"symbol": "batch", "nothing": None, "minus one": -1, "one": 1, "two": 2}
SAMPLES = 12


@dataclass(frozen=True)
class FloatNetwork:
    """A float model, inputs for calibration, and how it came about."""

    model: bytes
    samples: dict[str, np.ndarray]
    text: str


class FloatMaker:
    """Adds operators one after the other; ``last`` is the newest tensor, ``shape`` that of a sample of it.

    Parameters
    ----------
    rng : Generator
        Of weights and samples.
    naming : Naming
    batch : str
        A key of :data:`BATCHES`.
    opset : int
    order : str
        Of the nodes in the file; ONNX Runtime reads any.
    """

    def __init__(
        self, rng: np.random.Generator, naming: Naming, batch: str, opset: int, order: str = "as they are computed"
    ):
        self.rng, self.naming, self.opset, self.batch, self._order = rng, naming, opset, batch, order
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[str] = []
        self.known: list[onnx.ValueInfoProto] = []
        self.samples: dict[str, np.ndarray] = {}
        self.text = [f"batch: {batch}; opset {opset}; {naming.text}; order: {order}"]
        self.last, self.shape = "", ()

    def input(self, shape: Sequence[int], *, is_whole: bool = False, largest: float = np.inf) -> str:
        """A new input, of which the last tensor is one; of a whole one the first axis counts no samples.

        ``largest`` bounds its values, as those of a state are bounded.
        """
        self.last, self.shape = self.naming.tensor(), tuple(shape)
        sizes = [*shape] if is_whole else [BATCHES[self.batch], *shape]
        self.inputs.append(helper.make_tensor_value_info(self.last, TensorProto.FLOAT, sizes))
        values = self.rng.normal(0, 1, (SAMPLES, *shape)).clip(-largest, largest)
        self.samples[self.last] = values.astype(np.float32)
        return self.last

    def constant(self, array: np.ndarray | float | Sequence[int]) -> str:
        name, array = self.naming.tensor(), np.asarray(array)
        stored = array.astype(np.float32) if array.dtype.kind == "f" else array.astype(np.int64)
        self.constants.append(numpy_helper.from_array(stored, name))
        return name

    def weights(self, *shape: int, reach: int) -> str:
        """Constants with which a sum of ``reach`` products is as large as what is multiplied."""
        return self.constant(self.rng.normal(0, reach**-0.5, shape))

    def add(self, operator: str, *others: str, source: str | None = None, shape: Sequence[int] = (), **given) -> str:
        """An operator on the last tensor, or on ``source``; its samples keep the shape, or get another."""
        (output,) = self.add_several(operator, 1, *others, source=source, **given)
        self.last, self.shape = output, tuple(shape) or self.shape
        return output

    def add_several(self, operator: str, count: int, *others: str, source: str | None = None, **given) -> list[str]:
        """An operator with some outputs, which are given; the last tensor stays."""
        outputs = [self.naming.tensor() for _ in range(count)]
        inputs, name = [self.last if source is None else source, *others], self.naming.node(operator, outputs[0])
        self.nodes.append(helper.make_node(operator, inputs, outputs, name, **given))
        return outputs

    def declare(self) -> None:
        """Write the shape of the last tensor, where ONNX infers none."""
        sizes = [BATCHES[self.batch], *self.shape]
        self.known.append(helper.make_tensor_value_info(self.last, TensorProto.FLOAT, sizes))

    def split(self, sizes: Sequence[int], axis: int) -> list[str]:
        """Parts along an axis of the samples; the last one is the last tensor."""
        outputs = self.add_several("Split", len(sizes), self.constant(np.array(sizes)), axis=axis + 1)
        self.last, self.shape = outputs[-1], (*self.shape[:axis], sizes[-1], *self.shape[axis + 1 :])
        return outputs

    def mean(self, *axes: int, kept: bool = True) -> str:
        """Over axes of the samples, as the operator set says it."""
        places = [axis + 1 for axis in axes]
        sizes = [1 if axis in axes else size for axis, size in enumerate(self.shape)]
        shape = sizes if kept else [size for axis, size in enumerate(self.shape) if axis not in axes]
        if self.opset < 18:
            return self.add("ReduceMean", shape=shape, axes=places, keepdims=int(kept))
        return self.add("ReduceMean", self.constant(np.array(places)), shape=shape, keepdims=int(kept))

    def reshape(self, *shape: int) -> str:
        """The elements of a sample in another shape, however many samples there are."""
        assert math.prod(shape) == math.prod(self.shape)
        return self.add("Reshape", self.constant(np.array([-1 if self.batch != "one" else 1, *shape])), shape=shape)

    def transpose(self, *axes: int) -> str:
        """Axes of the samples in another order."""
        perm = [0, *(axis + 1 for axis in axes)]
        return self.add("Transpose", shape=[self.shape[axis] for axis in axes], perm=perm)

    def finish(self) -> FloatNetwork:
        """The network with the last tensor as output, and those that were named."""
        names = [*dict.fromkeys([*self.outputs, self.last])]
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
        graph = helper.make_graph(self.nodes, "net", self.inputs, infos, self.constants, value_info=self.known)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        # ONNX's checker wants them, and its inference does not find all.
        assume(all(value.type.tensor_type.HasField("shape") for value in inferred.graph.output))
        del model.graph.output[:]
        model.graph.output.extend(inferred.graph.output)
        if self._order == "backwards":
            nodes = [*model.graph.node]
            del model.graph.node[:]
            model.graph.node.extend(nodes[::-1])
        return FloatNetwork(model.SerializeToString(), self.samples, "\n  ".join(self.text))
