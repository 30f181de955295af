"""Butterflies with random weights, and ONNX models that have some, for tests."""

from __future__ import annotations

import sys

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from lutterfly.golden.numerics.butterfly import Density, Pattern, count_stages
from lutterfly.golden.numerics.fpc import UNIT_WEIGHT, Finish, Stages
from lutterfly.host.model.functions.fpc_function import add_function, make_function
from lutterfly.host.model.functions.onnx_function import DOMAIN


def random_stages(pattern: Pattern, seed: int, *, extreme: bool = False) -> Stages:
    """Weights around the ones that a network has, or the least and the greatest there are."""
    rng = np.random.default_rng(seed)

    def weights(trained: bool) -> np.ndarray:
        if not trained:
            return np.full(pattern.width, UNIT_WEIGHT, np.int8)
        drawn = rng.choice([-128, 127], pattern.width) if extreme else rng.integers(-80, 81, pattern.width)
        return drawn.astype(np.int8)

    return Stages(
        pattern,
        tuple(weights(density.trains_own) for density in pattern.densities),
        tuple(weights(density.trains_cross) for density in pattern.densities),
        tuple(rng.integers(0, 2, pattern.stages).tolist()),
        7 if extreme else int(rng.integers(0, 8)),
    )


def smaller_pattern(hardware: Pattern, rng: np.random.Generator) -> Pattern:
    """A layer that the hardware can run: fewer channels, fewer trained weights, fewer skips."""
    most = int(rng.choice([2, 3, hardware.width // 2, hardware.width - 1, hardware.width]))
    channels = [most, int(rng.integers(1, 1 + most))]
    rng.shuffle(channels)
    used = [index for index, distance in enumerate(hardware.distances) if distance < 1 << count_stages(*channels)]
    lighter = {Density.FULL: list(Density), Density.CROSS: [Density.CROSS, Density.UNIT], Density.UNIT: [Density.UNIT]}
    densities = [lighter[hardware.densities[index]] for index in used]
    skips = [skip for skip in hardware.skips if set(skip) <= set(used) and rng.random() < 0.7]
    return Pattern(
        *channels,
        tuple(hardware.distances[index] for index in used),
        tuple(choices[int(rng.integers(len(choices)))] for choices in densities),
        tuple((used.index(first), used.index(last)) for first, last in skips),
    )


def random_finish(outputs: int, seed: int, *, shift: int | None = None) -> Finish:
    """Any bias; scales that use the whole range of codes, or ``2**-shift``."""
    rng = np.random.default_rng(seed)
    scale = np.exp(rng.uniform(-6, -2, outputs)) if shift is None else np.full(outputs, 2.0**-shift)
    low, high = sorted(rng.choice([-128, 127, *rng.integers(-128, 128, 3)], 2, replace=False).tolist())
    bias = rng.integers(-(1 << 15), 1 << 15, outputs) if seed % 2 else rng.integers(-300, 300, outputs)
    return Finish(bias, scale.astype(np.float32), int(rng.integers(-128, 128)), low, high)


def rotating_stages(pattern: Pattern, seed: int, *, input_shift: int = 5) -> Stages:
    """Random weights that keep the magnitude of what enters, as those of a network in training begin."""
    rng = np.random.default_rng(seed)
    indices = np.arange(pattern.width)
    own, cross = [], []
    for distance, density in zip(pattern.distances, pattern.densities, strict=True):
        sign = np.where(indices & distance, 1, -1)
        turn = rng.choice([-64, 64], pattern.width)[indices & ~distance] + rng.integers(-6, 7, pattern.width)
        own.append(rng.integers(40, 70, pattern.width) if density.trains_own else np.full(pattern.width, UNIT_WEIGHT))
        cross.append(turn * sign if density.trains_cross else np.full(pattern.width, UNIT_WEIGHT))
    growth = tuple(stage % 2 for stage in range(pattern.stages))
    return Stages(pattern, tuple(own), tuple(cross), growth, input_shift)


def with_fast_pointwise(model: onnx.ModelProto, direction: str = "bottom-up", *, seed: int = 0) -> onnx.ModelProto:
    """A network in QOperator form whose pointwise convolutions of the stride 1 are fast ones, with random weights."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in changed.graph.initializer}
    (opset,) = (entry.version for entry in changed.opset_import if not entry.domain)
    for node in changed.graph.node:
        given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        if node.op_type != "QLinearConv" or given.get("strides", [1, 1]) != [1, 1] or given.get("group", 1) != 1:
            continue
        outputs, inputs, *kernel = values[node.input[3]].shape
        if kernel != [1, 1]:
            continue
        number = len(changed.functions)
        pattern = Pattern.of(inputs, outputs, direction)
        bias = np.random.default_rng(seed + number).integers(-500, 500, outputs)
        zero_point, result_zero_point = (int(values[node.input[at]].item()) for at in (2, 7))
        finish = Finish(bias, np.full(outputs, 2.0**-3, np.float32), result_zero_point, -128, 127)
        function = make_function(
            rotating_stages(pattern, seed + number),
            finish,
            zero_point,
            name=f"FastPointwiseConv_{number}",
            opset=opset,
        )
        add_function(changed, function)
        node.op_type, node.domain = function.name, function.domain
        del node.input[1:], node.attribute[:]
    changed.ir_version = max(changed.ir_version, 8)
    return changed


@st.composite
def patterns(draw: st.DrawFn, most: int = 64) -> Pattern:
    """Any channels, densities, order of distances and skips."""
    inputs, outputs = draw(st.integers(1, most)), draw(st.integers(1, most))
    inputs = max(inputs, 2) if outputs == 1 else inputs
    stages = count_stages(inputs, outputs)
    distances = draw(st.permutations([1 << stage for stage in range(stages)]))
    densities = draw(st.lists(st.sampled_from(list(Density)), min_size=stages, max_size=stages))
    every = [(first, last) for last in range(stages) for first in range(last + 1)]
    skips = draw(st.lists(st.sampled_from(every), max_size=3, unique=True))
    return Pattern(inputs, outputs, tuple(distances), tuple(densities), tuple(skips))


class Network:
    """An ONNX model under construction; every method returns the name of the new tensor.

    Parameters
    ----------
    shape : tuple of int
        Of the int8 input ``x``, the batch left out.
    """

    def __init__(self, shape: tuple[int, ...], *, opset: int = 17, seed: int = 0):
        self.rng, self.opset = np.random.default_rng(seed), opset
        self.inputs = [helper.make_tensor_value_info("x", TensorProto.INT8, ["batch", *shape])]
        self.nodes: list[onnx.NodeProto] = []
        self.functions: list[onnx.FunctionProto] = []
        self.constants: dict[str, np.ndarray] = {}

    def add(self, operator: str, *inputs: str, domain: str = "", **attributes: object) -> str:
        name = f"{operator}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [f"{name} out"], name, domain=domain, **attributes))
        return f"{name} out"

    def constant(self, value: object, dtype: type) -> str:
        name = f"constant{len(self.constants)}"
        self.constants[name] = np.array(value, dtype)
        return name

    def fast_pointwise(
        self, source: str, pattern: Pattern, *, zero_point: int = 3, spatial: int = 2, seed: int = 0, **known: object
    ) -> str:
        stages = known.get("stages") or random_stages(pattern, seed)
        finish = known.get("finish") or random_finish(pattern.outputs, seed)
        name = f"FastPointwiseConv_{len(self.functions)}"
        self.functions.append(make_function(stages, finish, zero_point, spatial=spatial, name=name, opset=self.opset))
        return self.add(name, source, domain=DOMAIN)

    def convolution(
        self,
        source: str,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        groups: int = 1,
        zero_point: int = 3,
        padded: bool = True,
    ) -> str:
        """From a zero point to 3."""
        shape = (outputs, inputs // groups, kernel, kernel)
        weights = self.rng.integers(-128, 128, shape)
        scale = np.float32(0.4 / np.sqrt(weights[0].size) / 74)
        one, zero = self.constant(1, np.float32), self.constant(3, np.int8)
        before = self.constant(zero_point, np.int8)
        own = [self.constant(weights, np.int8), self.constant(scale, np.float32), self.constant(0, np.int8)]
        bias = self.constant(self.rng.integers(-500, 500, outputs), np.int32)
        pads = [kernel // 2 if padded else 0] * 4
        return self.add("QLinearConv", source, one, before, *own, one, zero, bias, group=groups, pads=pads)

    def dequantise(self, source: str, scale: float = 0.05, zero_point: int = 3) -> str:
        return self.add(
            "DequantizeLinear", source, self.constant(scale, np.float32), self.constant(zero_point, np.int8)
        )

    def quantise(self, source: str, scale: float = 0.05, zero_point: int = 3) -> str:
        return self.add("QuantizeLinear", source, self.constant(scale, np.float32), self.constant(zero_point, np.int8))

    def table(self, source: str, operator: str = "Sigmoid") -> str:
        return self.quantise(self.add(operator, self.dequantise(source)), 0.02)

    def model(self, *outputs: str) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "network",
            self.inputs,
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9)
        for function in self.functions:
            add_function(model, function)
        # Says the types of the outputs.
        return onnx.shape_inference.infer_shapes(model)

    def data(self, *outputs: str) -> bytes:
        return self.model(*outputs).SerializeToString()


if __name__ == "__main__":
    # A network in QOperator form, and where the one with fast pointwise convolutions goes.
    onnx.save(with_fast_pointwise(onnx.load(sys.argv[1])), sys.argv[2])
