"""The file of a network under construction: tensors of codes, the nodes and constants between them, its ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
#: Root mean square of the codes of results over their zero point.
RESULT_RMS = 42.0


@dataclass(frozen=True, slots=True)
class Form:
    """How quantisation is written down."""

    qdq: bool
    unsigned: bool
    per_channel: bool

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.uint8 if self.unsigned else np.int8)

    @property
    def lowest(self) -> int:
        return 0 if self.unsigned else -128

    def __str__(self) -> str:
        words = ("QDQ" if self.qdq else "QOperator", self.dtype.name, "channel" if self.per_channel else "tensor")
        return f"{words[0]} {words[1]}, weights per {words[2]}"


@dataclass(frozen=True, slots=True)
class Codes:
    """A quantised tensor: ``shape`` without batch, channels first; ``rms`` of codes over the zero point, estimated."""

    name: str
    shape: tuple[int, ...]
    scale: np.float32
    zero_point: int
    rms: float

    @property
    def channels(self) -> int:
        return self.shape[0]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class NetFile:
    """A file under construction; methods take and return :class:`Codes`."""

    def __init__(self, form: Form, rng: np.random.Generator):
        self.form = form
        self.rng = rng
        self.opset = OPSET
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._dequantised: dict[str, str] = {}
        self._batch = int(rng.integers(2)) or "N"
        #: Of the products, as the network defines them.
        self.macs = 0

    # Inputs, outputs, file.

    def input(self, *shape: int, zero_point: int | None = None) -> Codes:
        """An input of codes, or of floats that the host quantises."""
        scale = self._any_scale()
        zero_point = self._any_zero_point() if zero_point is None else zero_point
        name, batch = f"input_{len(self._inputs)}", self._batch
        centre = self.form.lowest + 128 - zero_point
        x = Codes(name, shape, scale, zero_point, math.hypot(74.0, centre))
        if self.rng.random() < 0.5:
            kind = TensorProto.UINT8 if self.form.unsigned else TensorProto.INT8
            self._inputs.append(helper.make_tensor_value_info(name, kind, [batch, *shape]))
            return x
        if len(shape) == 3 and self.rng.random() < 0.3:
            # As frameworks with channels last export it.
            stored, order = (shape[1], shape[2], shape[0]), [0, 3, 1, 2]
            self._inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, *stored]))
            return self._quantise(self._node("Transpose", [name], perm=order), x)
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, *shape]))
        return self._quantise(name, x)

    def output(self, x: Codes) -> None:
        """Make a tensor an output, of codes or of floats."""
        if self.rng.random() < 0.5:
            name = self._node("Identity", [x.name])
            kind = TensorProto.UINT8 if self.form.unsigned else TensorProto.INT8
        else:
            name, kind = self._node("Identity", [self._float(x)]), TensorProto.FLOAT
        self._outputs.append(helper.make_tensor_value_info(name, kind, [self._batch, *x.shape]))

    def finish(self) -> bytes:
        """The file."""
        graph = helper.make_graph(self._nodes, "network", self._inputs, self._outputs, self._constants)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        version = helper.find_min_ir_version_for(opsets[:1])
        return helper.make_model(graph, opset_imports=opsets, ir_version=version).SerializeToString()

    # Parts of all operators.

    def _on_codes(self, kind: str, x: Codes, shape: Sequence[int], *more: str, **attributes) -> Codes:
        """An operator that leaves scale and zero point as they are."""
        y = replace(x, shape=tuple(shape))
        if self.form.qdq:
            return self._write(self._node(kind, [self._read(x), *more], **attributes), y)
        return replace(y, name=self._node(kind, [x.name, *more], **attributes))

    def _read(self, x: Codes) -> str:
        """What an operator reads that moves numbers, chooses among them, or is a function of one."""
        return self._float(x)

    def _write(self, name: str, y: Codes) -> Codes:
        """The result of such an operator as codes."""
        return self._quantise(name, y)

    def _float(self, x: Codes) -> str:
        if x.name not in self._dequantised:
            inputs = [x.name, self._constant(x.scale), self._code(x.zero_point)]
            self._dequantised[x.name] = self._node("DequantizeLinear", inputs)
        return self._dequantised[x.name]

    def _quantise(self, name: str, y: Codes) -> Codes:
        inputs = [name, self._constant(y.scale), self._code(y.zero_point)]
        return replace(y, name=self._node("QuantizeLinear", inputs))

    def _node(self, kind: str, inputs: Sequence[str], domain: str = "", **attributes) -> str:
        name = f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [f"{name}_output"], name=name, domain=domain, **attributes))
        return f"{name}_output"

    def _constant(self, value: np.ndarray | np.generic) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def _code(self, value: int) -> str:
        return self._constant(np.array(value, self.form.dtype))

    def _any_scale(self) -> np.float32:
        return np.float32(2 ** self.rng.uniform(-8, -3))

    def _any_zero_point(self) -> int:
        """Near the middle mostly, and sometimes at a limit."""
        middle = self.form.lowest + 128
        if self.rng.random() < 0.1:
            return int(self.rng.choice([middle - 128, middle + 127]))
        return middle + int(self.rng.integers(-25, 26))
