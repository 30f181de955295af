"""Quantised ONNX models in both forms, written node by node with onnx.helper."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from lutterfly.host.model.runtime import plain_session

FORMS = ("qop", "qdq")


@dataclass(frozen=True)
class Limits:
    """Bounds of what is generated, so that it fits a configuration.

    Attributes
    ----------
    channels, kernel, stride, dilation, pad : int
        Greatest values.
    side : int
        Greatest height and width of the input.
    map_bytes : int
        Greatest feature map, borders included.
    weight_bytes : int
        Most weights of a layer.
    macs : int
        Most multiply-accumulates of a layer.
    """

    channels: int = 40
    kernel: int = 7
    stride: int = 3
    dilation: int = 2
    pad: int = 3
    side: int = 16
    map_bytes: int = 16 << 10
    weight_bytes: int = 64 << 10
    macs: int = 2_000_000


#: Fits the preset `tiny`, chains included, with room for borders and for words that are not full.
TINY = Limits(side=10, map_bytes=1200, weight_bytes=3000, macs=150_000)


@dataclass(frozen=True)
class Generated:
    """A model and what it is made of."""

    model: bytes
    text: str
    input_shape: tuple[int, ...]
    input_type: np.dtype

    def feeds(self, seed: int) -> dict[str, np.ndarray]:
        """Random input: codes of any value, or floats in the range of the input's QuantizeLinear."""
        generator = np.random.default_rng(seed)
        if self.input_type == np.float32:
            return {"x": generator.uniform(-1.3, 1.3, self.input_shape).astype(np.float32)}
        limits = np.iinfo(self.input_type)
        return {"x": generator.integers(limits.min, limits.max + 1, self.input_shape, self.input_type)}


@dataclass
class Writer:
    """A model that is being written; the current tensor is always one of codes.

    Attributes
    ----------
    form : str
        "qop" or "qdq".
    unsigned : bool
        uint8 activations.
    """

    rng: np.random.Generator
    form: str
    unsigned: bool
    limits: Limits
    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    text: list[str] = field(default_factory=list)
    tensor: str = "x"
    input_shape: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    scale: str = ""
    zero: str = ""

    @property
    def dtype(self) -> np.dtype:
        """Type of the activations."""
        return np.dtype(np.uint8 if self.unsigned else np.int8)

    def name(self, kind: str) -> str:
        return f"{kind}_{len(self.nodes)}"

    def constant(self, kind: str, value) -> str:
        name = f"{kind}_{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def node(self, operator: str, inputs: Sequence[str], output: str = "", domain: str = "", **attributes) -> str:
        name = self.name(operator)
        output = output or f"{name}_out"
        self.nodes.append(helper.make_node(operator, inputs, [output], name, domain=domain, **attributes))
        return output

    def quantisation(self, scale: float, zero_point: int | None = None) -> tuple[str, str]:
        """Constants for scale and zero point of a new tensor; the zero point is an int8 code, random by default."""
        if zero_point is None:
            zero_point = int(self.rng.choice([-128, 127, 0, int(self.rng.integers(-128, 128))]))
        code = np.array(zero_point + 128 if self.unsigned else zero_point, self.dtype)
        return self.constant("scale", np.float32(scale)), self.constant("zero", code)

    def value(self, name: str) -> np.ndarray:
        return self.constants[name]

    def start(self, shape: tuple[int, ...], scale: float = 0.02) -> None:
        self.input_shape = self.shape = shape
        self.scale, self.zero = self.quantisation(scale)

    def dequantised(self) -> str:
        return self.node("DequantizeLinear", [self.tensor, self.scale, self.zero])

    def quantise(self, tensor: str, scale: str, zero: str, shape: tuple[int, ...]) -> None:
        self.tensor = self.node("QuantizeLinear", [tensor, scale, zero])
        self.scale, self.zero, self.shape = scale, zero, shape

    def finish(self, *, float_ends: bool = False) -> Generated:
        """The model; with ``float_ends`` a QuantizeLinear in front, DequantizeLinear and Softmax after."""
        text = f"{self.form} {self.dtype}: {'; '.join(self.text)}"
        if not float_ends:
            return Generated(self.serialise(), text, self.input_shape, self.dtype)
        scale, zero = itertools.islice(self.constants, 2)
        self.tensor = self.node("Softmax", [self.dequantised()], axis=-1)
        for node in self.nodes:
            node.input[:] = ["x_codes" if name == "x" else name for name in node.input]
        self.nodes.insert(0, helper.make_node("QuantizeLinear", ["x", scale, zero], ["x_codes"], "quantise_input"))
        return Generated(self.serialise(input_type=np.float32), text, self.input_shape, np.dtype(np.float32))

    def serialise(
        self, outputs: Sequence[str] = (), *, input_type: type | np.dtype | None = None, opset: int = 20
    ) -> bytes:
        """The model with the given outputs, by default the current tensor, and the input ``x``."""
        outputs = outputs or [self.tensor]
        input_type = np.dtype(input_type or self.dtype)
        shape = ["batch", *self.input_shape[1:]]
        tensors = [numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        x = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(input_type), shape)

        def make(infos: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
            graph = helper.make_graph(self.nodes, "generated", [x], infos, tensors)
            return helper.make_model(graph, opset_imports=opsets, ir_version=10)

        session = plain_session(make([helper.make_empty_tensor_value_info(name) for name in outputs]))
        values = session.run(outputs, {"x": np.zeros(self.input_shape, input_type)})
        types = [helper.np_dtype_to_tensor_dtype(value.dtype) for value in values]
        model = make(
            [
                helper.make_tensor_value_info(name, item, ["batch", *value.shape[1:]])
                for name, item, value in zip(outputs, types, values, strict=True)
            ]
        )
        onnx.checker.check_model(model)
        return model.SerializeToString()
