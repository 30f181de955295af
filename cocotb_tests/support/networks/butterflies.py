"""Butterflies for tests: random weights, accelerators that have one, and ONNX models with fast pointwise layers."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ArrayConfig, AxiConfig
from lutterfly.golden.engines import DEPTHWISE, ENGINES, FPC, MAC, MAXIMUM, WINOGRAD, EngineConfigs
from lutterfly.golden.engines.depthwise import DepthwiseConfig
from lutterfly.golden.engines.fpc import FpcConfig
from lutterfly.golden.numerics.butterfly import Density, Direction, Pattern, count_stages
from lutterfly.golden.numerics.fpc import UNIT_WEIGHT, FpcEpilogue, Stages
from lutterfly.golden.presets import DEFAULT_PRESET, PRESETS
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


def random_epilogue(outputs: int, seed: int, *, shift: int | None = None) -> FpcEpilogue:
    """Any bias; scales that use the whole range of codes, or ``2**-shift``."""
    rng = np.random.default_rng(seed)
    scale = np.exp(rng.uniform(-6, -2, outputs)) if shift is None else np.full(outputs, 2.0**-shift)
    low, high = sorted(rng.choice([-128, 127, *rng.integers(-128, 128, 3)], 2, replace=False).tolist())
    bias = rng.integers(-(1 << 15), 1 << 15, outputs) if seed % 2 else rng.integers(-300, 300, outputs)
    return FpcEpilogue(bias, scale.astype(np.float32), int(rng.integers(-128, 128)), low, high)


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
        epilogue = FpcEpilogue(bias, np.full(outputs, 2.0**-3, np.float32), result_zero_point, -128, 127)
        function = make_function(
            rotating_stages(pattern, seed + number),
            epilogue,
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
        epilogue = known.get("epilogue") or random_epilogue(pattern.outputs, seed)
        name = f"FastPointwiseConv_{len(self.functions)}"
        self.functions.append(make_function(stages, epilogue, zero_point, spatial=spatial, name=name, opset=self.opset))
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


# Networks that are drawn: fast pointwise convolutions among every other kind of layer.

#: Of all activations.
_ZERO_POINT = 3


@dataclass(frozen=True)
class _Map:
    """A feature map: its tensor and its shape."""

    name: str
    channels: int
    height: int
    width: int


class _Drawn:
    def __init__(self, seed: int, most_channels: int, directions: Sequence[Direction], *, is_standard: bool):
        self.rng, self.most, self.directions = np.random.default_rng(seed), most_channels, directions
        self.is_standard = is_standard
        channels, height, width = self.rng.integers(1, most_channels + 1), *self.rng.integers(2, 7, 2)
        self.network = Network((int(channels), int(height), int(width)), seed=seed)
        self.maps = [_Map("x", int(channels), int(height), int(width))]

    def grow(self) -> None:
        """Add a layer that reads the last map, and perhaps another one."""
        last = self.maps[-1]
        kinds = {
            "fast": self.fast,
            "convolution": self.convolution,
            "depthwise": self.depthwise,
            "table": self.table,
            "pool": self.pool,
            "add": self.add,
            "concat": self.concat,
        }
        # Every second layer is one that this is about.
        kind = "fast" if self.rng.integers(2) else str(self.rng.choice(list(kinds)))
        self.maps.append(kinds[kind](last))

    def fast(self, last: _Map, spatial: int = 2) -> _Map:
        rng, seed = self.rng, int(self.rng.integers(1 << 20))
        outputs = int(rng.integers(2, self.most + 1))
        stages = count_stages(last.channels, outputs)
        densities = rng.choice(list(Density), stages).tolist() if rng.integers(3) == 0 else None
        skips = [(0, stages - 1)] if rng.integers(4) == 0 else []
        if self.is_standard:
            densities, skips = None, []
        pattern = Pattern.of(last.channels, outputs, str(rng.choice(self.directions)), densities, skips)
        epilogue = random_epilogue(outputs, seed, shift=int(rng.integers(2, 7)) if rng.integers(2) else None)
        if epilogue.shift is not None:
            # Such a layer needs no requantiser; it may use all codes, as a layer of a network does.
            epilogue = dataclasses.replace(epilogue, low=-128, high=127)
        name = self.network.fast_pointwise(
            last.name,
            pattern,
            zero_point=_ZERO_POINT,
            spatial=spatial,
            stages=(random_stages if rng.integers(3) == 0 else rotating_stages)(pattern, seed),
            epilogue=dataclasses.replace(epilogue, zero_point=_ZERO_POINT),
        )
        return _Map(name, outputs, last.height, last.width)

    def convolution(self, last: _Map) -> _Map:
        outputs = int(self.rng.integers(1, self.most + 1))
        kernel = int(self.rng.choice([1, 3]))
        return dataclasses.replace(
            last, name=self.network.convolution(last.name, last.channels, outputs, kernel), channels=outputs
        )

    def depthwise(self, last: _Map) -> _Map:
        name = self.network.convolution(last.name, last.channels, last.channels, 3, groups=last.channels)
        return dataclasses.replace(last, name=name)

    def table(self, last: _Map) -> _Map:
        operator = str(self.rng.choice(["Sigmoid", "HardSwish", "Tanh"]))
        return dataclasses.replace(last, name=self.network.table(last.name, operator))

    def pool(self, last: _Map) -> _Map:
        if min(last.height, last.width) < 2:
            return self.depthwise(last)
        name = self.network.add("MaxPool", last.name, kernel_shape=[2, 2], strides=[2, 2])
        return _Map(name, last.channels, last.height // 2, last.width // 2)

    def add(self, last: _Map) -> _Map:
        alike = [one for one in self.maps[:-1] if dataclasses.replace(one, name=last.name) == last]
        if not alike:
            return self.fast(last)
        other, network = alike[self.rng.integers(len(alike))], self.network
        total = network.add("Add", network.dequantise(last.name), network.dequantise(other.name))
        return dataclasses.replace(last, name=network.quantise(total))

    def concat(self, last: _Map) -> _Map:
        beside = [one for one in self.maps[:-1] if (one.height, one.width) == (last.height, last.width)]
        if not beside:
            return self.fast(last)
        other = beside[self.rng.integers(len(beside))]
        name = self.network.add("Concat", last.name, other.name, axis=1)
        return dataclasses.replace(last, name=name, channels=last.channels + other.channels)

    def vector(self, last: _Map) -> _Map:
        """The greatest of each channel, and a layer on them."""
        pooled = self.network.add("MaxPool", last.name, kernel_shape=[last.height, last.width])
        flat = _Map(self.network.add("Flatten", pooled), last.channels, 1, 1)
        return self.fast(flat, spatial=0)


def fast_network(
    seed: int,
    *,
    most_channels: int = 40,
    directions: Sequence[Direction] = tuple(Direction),
    is_standard: bool = False,
) -> tuple[bytes, dict[str, np.ndarray]]:
    """An ONNX file with the int8 input ``x`` and an int8 output, and a feed for it.

    ``is_standard``: with the densities of the direction, and without skips.
    """
    drawn = _Drawn(seed, most_channels, directions, is_standard=is_standard)
    first = drawn.maps[0]
    drawn.maps.append(drawn.fast(first) if first.channels > 1 else drawn.convolution(first))
    for _ in range(int(drawn.rng.integers(2, 7))):
        drawn.grow()
    last = drawn.maps[-1]
    if drawn.rng.integers(3) == 0:
        last = drawn.vector(last)
    shape = (1, first.channels, first.height, first.width)
    feed = drawn.rng.integers(-128, 128, shape).astype(np.int8)
    return drawn.network.data(last.name), {"x": feed}


# Small accelerators with a butterfly.

_TINY = PRESETS["tiny"]

FPC_CONFIGS: dict[str, Config] = {
    # Two columns of weights in the weight memory, three in that of the engine.
    "further": dataclasses.replace(
        _TINY,
        engines=EngineConfigs.of(MAC, DEPTHWISE, FPC, DEPTHWISE=DepthwiseConfig(2), FPC=FpcConfig(16, own_words=16)),
    ),
    "bottom-up": dataclasses.replace(
        _TINY,
        array=ArrayConfig(lanes=4, columns=4, requant_lanes=2),
        engines=EngineConfigs.of(*ENGINES.values(), FPC=FpcConfig(8, skips=((0, 2), (0, 1)))),
    ),
    # A word of results is a group, and a pixel is eight words.
    "top-down": dataclasses.replace(
        _TINY,
        array=ArrayConfig(lanes=8, columns=8, requant_lanes=8),
        memory=dataclasses.replace(_TINY.memory, parameter_bytes=8 << 10),
        axi=AxiConfig(data_bits=64),
        engines=EngineConfigs.of(MAC, MAXIMUM, FPC, FPC=FpcConfig(64, "top-down", skips=((0, 5),))),
    ),
}


def _heavier(direction: str, densities: tuple[str, ...], skips: tuple[tuple[int, int], ...]) -> Config:
    """More weights than the directions have by themselves, and a skip across as many stages as most layers have."""
    return dataclasses.replace(
        _TINY,
        array=ArrayConfig(lanes=8, columns=8, requant_lanes=2),
        memory=dataclasses.replace(_TINY.memory, weight_bytes=32 << 10, feature_bytes=16 << 10),
        engines=EngineConfigs.of(*ENGINES.values(), FPC=FpcConfig(64, direction, densities, skips)),
    )


#: What drawn networks run on.
DRAWN_CONFIGS: dict[str, Config] = {
    "default": PRESETS[DEFAULT_PRESET],
    "bottom-up": _heavier("bottom-up", ("full", "full", *["cross"] * 4), ((0, 5), (0, 4), (0, 3), (0, 2))),
    "top-down": _heavier("top-down", (*["cross"] * 4, "full", "full"), ((0, 5), (1, 5), (2, 5), (3, 5))),
}

#: For proofs: bursts of two results, of two groups each; and of eight, of which the gate lets more cycles wait than
#: of other windows.
BURST_CONFIGS: dict[str, Config] = {
    name: dataclasses.replace(
        _TINY,
        array=ArrayConfig(lanes=4, columns=4, requant_lanes=requant_lanes),
        engines=EngineConfigs.of(MAC, FPC, FPC=FpcConfig(width)),
    )
    for name, requant_lanes, width in (("two", 2, 8), ("eight", 4, 32))
}
BURST_CONFIGS["two, hands over"] = dataclasses.replace(BURST_CONFIGS["two"], hands_over=True)

#: For proofs: bursts of two results, windows of three others, and windows of one. Or windows of two neighbours, which
#: may take as many cycles as there can be, and one more.
CHAIN_CONFIGS: dict[str, Config] = {
    "chains": dataclasses.replace(
        BURST_CONFIGS["two, hands over"],
        engines=EngineConfigs.of(MAC, FPC, DEPTHWISE, FPC=FpcConfig(8), DEPTHWISE=DepthwiseConfig(taps=1, chains=3)),
    ),
    "neighbours": dataclasses.replace(
        _TINY,
        array=ArrayConfig(lanes=8, columns=8, requant_lanes=1),
        engines=EngineConfigs.of(MAC, FPC, WINOGRAD, FPC=FpcConfig(16)),
        hands_over=True,
    ),
}


if __name__ == "__main__":
    # A network in QOperator form, and where the one with fast pointwise convolutions goes.
    onnx.save(with_fast_pointwise(onnx.load(sys.argv[1])), sys.argv[2])
