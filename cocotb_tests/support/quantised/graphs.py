"""Quantised graphs for tests: layer by layer, random ones, and ones with binary layers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from cocotb_tests.support.quantised.evaluation import counts_inside
from lutterfly.golden.numerics.addition import UNSIGNED_OFFSET, sum_tables
from lutterfly.golden.numerics.multiplication import ProductScaling
from lutterfly.host.compiler.network import Network
from lutterfly.host.graph import (
    Add,
    AveragePool,
    BinaryConvolution,
    CodeEpilogue,
    Concat,
    Convolution,
    ElementwiseProduct,
    Graph,
    MaxPool,
    Pointwise,
    Rearrange,
    Slice,
    Tensor,
    View,
    Window,
    copies,
)


class GraphMaker:
    """Appends layers to a graph; every method returns the name of the new tensor.

    Parameters
    ----------
    shape : tuple of int
        (height, width, channels) of the input ``x``.
    seed : int
    """

    def __init__(self, shape: tuple[int, int, int], *, seed: int = 0, zero_point: int = 3):
        self.rng = np.random.default_rng(seed)
        self.graph = Graph({}, [], ["x"], [])
        self._tensor("x", shape, zero_point)

    def _tensor(self, name: str, shape: tuple[int, int, int], zero_point: int) -> str:
        views = (View(name, (1, shape[2], *shape[:2]), (2, 0, 1), False),)
        self.graph.tensors[name] = Tensor(name, shape, 0.05, zero_point, views)
        return name

    def input(self, name: str, shape: tuple[int, int, int], *, zero_point: int = 3) -> str:
        """Another input."""
        self.graph.inputs.append(name)
        return self._tensor(name, shape, zero_point)

    def _name(self) -> str:
        return f"t{len(self.graph.layers)}"

    def convolution(
        self,
        source: str,
        channels: int,
        window: Window,
        *,
        table: bool = False,
        zero_point: int | None = None,
        groups: int = 1,
        unit: bool = False,
    ) -> str:
        height, width, depth = self.graph.tensors[source].shape
        shape = (*window.output_size(height, width), channels)
        weights = self.rng.integers(-128, 128, (channels, *window.kernel, depth // groups), dtype=np.int8)
        if unit:
            weights[:] = 1
        bias = self.rng.integers(-2000, 2000, channels, dtype=np.int32)
        spread = 40 / (74 * 74 * np.sqrt(weights[0].size))
        multiplier = (self.rng.uniform(0.5, 2, channels) * spread).astype(np.float32)
        zero_point = int(self.rng.integers(-128, 128)) if zero_point is None else zero_point
        low, high = (
            int(self.rng.choice(codes))
            for codes in ([-128, min(-100, zero_point), zero_point], [zero_point, max(100, zero_point), 127])
        )
        name = self._name()
        epilogue = CodeEpilogue(low, high)
        if table:
            epilogue = epilogue.after(self._tensor(f"{name}_requantised", shape, zero_point), self.table())
        self.graph.layers.append(
            Convolution(
                f"conv_{name}",
                (source,),
                name,
                weights,
                bias,
                multiplier,
                groups,
                window=window,
                epilogue=epilogue,
            )
        )
        return self._tensor(name, shape, int(self.rng.integers(-128, 128)) if table else zero_point)

    def fully_connected(self, source: str, channels: int, **options) -> str:
        return self.convolution(source, channels, Window(self.graph.tensors[source].shape[:2]), **options)

    def depthwise(self, source: str, window: Window, *, multiplier: int = 1, **options) -> str:
        depth = self.graph.tensors[source].shape[2]
        return self.convolution(source, depth * multiplier, window, groups=depth, **options)

    def global_average(self, source: str) -> str:
        return self.depthwise(source, Window(self.graph.tensors[source].shape[:2]), unit=True)

    def average_pool(self, source: str, window: Window, *, table: bool = False) -> str:
        """Of the elements inside; every window must have some."""
        size = self.graph.tensors[source].shape[:2]
        name = self.depthwise(source, window, unit=True, table=table)
        layer = self.graph.layers.pop()
        counts = {int(count) for row in counts_inside(window, size) for count in row}
        scale = float(self.rng.uniform(0.3, 1.5))
        multipliers = {count: np.float32(scale / count) for count in sorted(counts)}
        self.graph.layers.append(
            AveragePool(
                layer.name,
                layer.inputs,
                layer.output,
                window=window,
                epilogue=layer.epilogue,
                channels=layer.groups,
                scale=multipliers[max(counts)],
                multipliers=multipliers if len(counts) > 1 else {},
            )
        )
        return name

    def add(self, first: str, second: str, *, table: bool = False) -> str:
        tensors = self.graph.tensors
        zero_points = (tensors[first].zero_point, tensors[second].zero_point, int(self.rng.integers(-128, 128)))
        unsigned = bool(self.rng.integers(2))
        *tables, fraction = sum_tables(tuple(self.rng.uniform(0.02, 0.1, 3)), zero_points, unsigned=unsigned)
        name, offset = self._name(), UNSIGNED_OFFSET if unsigned else 0
        epilogue = CodeEpilogue(-120, 115)
        if table:
            inner = self._tensor(f"{name}_requantised", tensors[first].shape, zero_points[2])
            epilogue = epilogue.after(inner, self.table())
        self.graph.layers.append(
            Add(f"add_{name}", (first, second), name, *tables, fraction, offset, epilogue=epilogue)
        )
        return self._tensor(name, tensors[first].shape, zero_points[2])

    def multiply(self, first: str, second: str, *, table: bool = False) -> str:
        """Of two maps, or of a map and a vector."""
        tensors = self.graph.tensors
        points, shape = (tensors[first].zero_point, tensors[second].zero_point), tensors[first].shape
        scaling = ProductScaling(
            int(self.rng.integers(-9999, 9999)), np.float32(2.0**-21 * self.rng.uniform(0.3, 2)), 3
        )
        spread = (1, 1) if tensors[second].shape == shape else shape[:2]
        name, epilogue = self._name(), CodeEpilogue(-120, 115)
        if table:
            epilogue = epilogue.after(self._tensor(f"{name}_requantised", shape, 3), self.table())
        layer = ElementwiseProduct(
            f"multiply_{name}", (first, second), name, points, scaling, spread, epilogue=epilogue
        )
        self.graph.layers.append(layer)
        return self._tensor(name, shape, 3)

    def concat(self, *sources: str, tables: bool = True) -> str:
        """Channels side by side; without ``tables`` all codes stay, and so does the zero point of the first source."""
        shapes = [self.graph.tensors[source].shape for source in sources]
        zero_point = 0 if tables else self.graph.tensors[sources[0]].zero_point
        tables = tuple(self.table() if tables and self.rng.integers(2) else None for _ in sources)
        name = self._name()
        self.graph.layers.append(Concat(f"concat_{name}", sources, name, tables))
        return self._tensor(name, (*shapes[0][:2], sum(shape[2] for shape in shapes)), zero_point)

    def slice(self, source: str, first: int, channels: int) -> str:
        tensor, name = self.graph.tensors[source], self._name()
        self.graph.layers.append(Slice(f"slice_{name}", (source,), name, first, channels))
        return self._tensor(name, (*tensor.shape[:2], channels), tensor.zero_point)

    def arranged(self, moved: np.ndarray, *sources: str) -> str:
        """Any arrangement, see :func:`~lutterfly.host.graph.copies.arrange`; its zero point is that of the first
        source."""
        tensors, name = [self.graph.tensors[source] for source in sources], self._name()
        shapes = [tensor.shape for tensor in tensors]
        layer = copies.arrange(f"arranged_{name}", "", sources, name, shapes, moved)
        assert layer is not None, "it takes too many pieces"
        self.graph.layers.append(layer)
        return self._tensor(name, moved.shape, tensors[0].zero_point)

    def nearest(self, source: str, factors: tuple[int, int] = (2, 2)) -> str:
        height, width, channels = shape = self.graph.tensors[source].shape
        target = height * factors[0], width * factors[1], channels
        return self._arranged(source, target, copies.nearest, shape, factors)

    def depth_to_space(self, source: str, block: tuple[int, int] = (2, 2), *, phases_first: bool = True) -> str:
        height, width, channels = shape = self.graph.tensors[source].shape
        target = height * block[0], width * block[1], channels // (block[0] * block[1])
        arranged = functools.partial(copies.depth_to_space, phases_first=phases_first)
        return self._arranged(source, target, arranged, shape, block)

    def space_to_depth(self, source: str, block: tuple[int, int] = (2, 2)) -> str:
        height, width, channels = shape = self.graph.tensors[source].shape
        target = height // block[0], width // block[1], channels * block[0] * block[1]
        return self._arranged(source, target, copies.space_to_depth, shape, block)

    def crop(self, source: str, pads: tuple[int, int, int, int]) -> str:
        height, width, channels = shape = self.graph.tensors[source].shape
        target = height - pads[0] - pads[2], width - pads[1] - pads[3], channels
        return self._arranged(source, target, copies.crop, shape, pads)

    def _arranged(self, source: str, target: tuple[int, int, int], make: Callable[..., Rearrange], *given) -> str:
        name = self._name()
        self.graph.layers.append(make(f"arranged_{name}", source, name, *given))
        return self._tensor(name, target, self.graph.tensors[source].zero_point)

    def max_pool(self, source: str, window: Window, *, table: bool = False) -> str:
        tensor = self.graph.tensors[source]
        name = self._name()
        epilogue = CodeEpilogue(table=self.table() if table else None)
        self.graph.layers.append(MaxPool(f"pool_{name}", (source,), name, window=window, epilogue=epilogue))
        return self._tensor(name, (*window.output_size(*tensor.shape[:2]), tensor.shape[2]), tensor.zero_point)

    def pointwise(self, source: str) -> str:
        name = self._name()
        self.graph.layers.append(Pointwise(f"table_{name}", (source,), name, epilogue=CodeEpilogue(table=self.table())))
        return self._tensor(name, self.graph.tensors[source].shape, int(self.rng.integers(-128, 128)))

    def table(self) -> np.ndarray:
        return self.rng.integers(-128, 128, 256, dtype=np.int8)

    def finish(self, *outputs: str) -> Graph:
        self.graph.outputs = list(outputs)
        return self.graph


# Random quantised graphs.

SAME, POINT = Window((3, 3), pads=(1, 1, 1, 1)), Window((1, 1))
#: Of the layers in random graphs.
KINDS = (
    "convolution",
    "convolution",
    "pool",
    "table",
    "fully connected",
    "depthwise",
    "depthwise",
    "groups",
    "average",
    "residual",
    "concat",
    "slice",
)


def random_graph(seed: int) -> Graph:
    """A few layers with geometry at random, small enough for every configuration."""
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 11)), int(rng.integers(1, 11)), int(rng.choice([1, 2, 3, 5, 8, 17])))
    maker = GraphMaker(shape, seed=seed, zero_point=int(rng.integers(-128, 128)))
    name = "x"
    outputs = []
    for _ in range(int(rng.integers(1, 5))):
        kind = rng.choice(KINDS)
        window = random_window(rng, maker.graph.tensors[name].shape)
        channels = maker.graph.tensors[name].shape[2]
        table = bool(rng.integers(2)) and len(maker.graph.layers) < 4
        if kind == "pool":
            name = maker.max_pool(name, window, table=table)
        elif kind == "table":
            name = maker.pointwise(name)
        elif kind == "depthwise":
            name = maker.depthwise(name, window, multiplier=int(rng.choice([1, 1, 1, 2, 3])), table=table)
        elif kind == "groups":
            groups = int(rng.choice([n for n in range(1, channels + 1) if channels % n == 0]))
            name = maker.convolution(name, groups * int(rng.integers(1, 12)), window, groups=groups, table=table)
        elif kind == "average":
            name = maker.global_average(name)
        elif kind == "residual":
            beside = maker.convolution(name, channels, Window((3, 3), pads=(1, 1, 1, 1)))
            name = maker.add(*((name, beside) if rng.integers(2) else (beside, name)), table=table)
        elif kind == "concat":
            name = maker.concat(name, maker.convolution(name, int(rng.integers(1, 20)), Window((1, 1))), name)
        elif kind == "slice":
            first = int(rng.integers(channels))
            name = maker.slice(name, first, int(rng.integers(1, channels - first + 1)))
        elif kind == "fully connected":
            name = maker.fully_connected(name, int(rng.integers(1, 20)), table=table)
        else:
            name = maker.convolution(name, int(rng.integers(1, 20)), window, table=table)
        if rng.integers(4) == 0:
            outputs.append(name)
    return maker.finish(*dict.fromkeys([*outputs, name]))


def random_fork(seed: int) -> Graph:
    """Layers that read any of the tensors before, so that channels are joined and taken apart in every way."""
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 8)), int(rng.integers(1, 8)), int(rng.choice([2, 4, 6, 9])))
    maker, names, same = GraphMaker(shape, seed=seed), ["x"], Window((3, 3), pads=(1, 1, 1, 1))
    channels = {"x": shape[2]}
    for _ in range(int(rng.integers(3, 9))):
        name = str(rng.choice(names))
        depth = channels[name]
        alike = [other for other in names if channels[other] == depth]
        kind = rng.choice([*2 * ["convolution", "concat"], "depthwise", "pool", "slice", "add", "table"])
        if kind == "convolution":
            window = same if rng.integers(2) else Window((1, 1))
            name = maker.convolution(name, int(rng.integers(1, 9)), window, zero_point=3, table=rng.integers(5) == 0)
        elif kind == "depthwise":
            name = maker.depthwise(name, same, zero_point=3)
        elif kind == "pool":
            name = maker.max_pool(name, same)
        elif kind == "concat":
            parts = [str(part) for part in rng.choice(names, int(rng.integers(2, 4)))]
            if sum(channels[part] for part in parts) > 40:
                continue
            name = maker.concat(*parts, tables=bool(rng.integers(4) == 0))
        elif kind == "slice":
            first = int(rng.integers(depth))
            name = maker.slice(name, first, int(rng.integers(1, depth - first + 1)))
        elif kind == "add":
            name = maker.add(name, str(rng.choice(alike)))
        else:
            name = maker.pointwise(name)
        names.append(name)
        channels[name] = maker.graph.tensors[name].shape[2]
    read = {name for layer in maker.graph.layers for name in layer.inputs}
    return maker.finish(*(name for name in names if (name not in read and name != "x") or name == names[-1]))


def random_arranged(seed: int, *, sides: tuple[int, int] = (3, 9)) -> Graph:
    """Layers between which elements move to other pixels and channels: upsampling, depth to space and back, crops."""
    rng = np.random.default_rng(seed)
    height, width = map(int, rng.integers(*sides, 2))
    maker = GraphMaker((height, width, int(rng.integers(1, 20))), seed=seed)
    names = ["x", maker.convolution("x", int(rng.integers(1, 20)), SAME)]
    for _ in range(int(rng.integers(1, 5))):
        name = names[-1] if rng.random() < 0.8 else names[int(rng.integers(1, len(names)))]
        names.append(_arranged(maker, rng, name, most=sides[1] ** 2 * 4))
    shapes = {name: maker.graph.tensors[name].shape[:2] for name in names}
    alike = [name for name in names if shapes[name] == shapes[names[-1]]]
    if len(alike) > 1 and rng.integers(2):
        names.append(maker.concat(*alike[-2:], tables=bool(rng.integers(2))))
    if rng.random() < 0.7:
        names.append(maker.convolution(names[-1], int(rng.integers(1, 17)), SAME))
    return maker.finish(names[-1])


def _arranged(maker: GraphMaker, rng: np.random.Generator, name: str, most: int) -> str:
    """A layer more, whose output has at most about ``most`` pixels, in general one that moves elements."""
    height, width, channels = maker.graph.tensors[name].shape
    factors = tuple(map(int, rng.choice([(2, 2), (1, 2), (3, 1), (2, 3)])))
    phases, table = factors[0] * factors[1], rng.random() < 0.3
    can_grow = height * width * phases <= most
    kind = rng.choice(["nearest", "depth", "depth", "depthwise", "space", "crop", "convolution"])
    if kind == "nearest" and can_grow:
        return maker.nearest(name, factors)
    if kind == "depth" and can_grow:
        wide = maker.convolution(
            name, int(rng.integers(1, 12)) * phases, SAME if rng.integers(2) else POINT, table=table
        )
        return maker.depth_to_space(wide, factors, phases_first=bool(rng.integers(2)))
    if kind == "depthwise" and can_grow and channels < 12:
        wide = maker.depthwise(name, SAME, multiplier=phases)
        return maker.depth_to_space(wide, factors, phases_first=False)
    if kind == "space" and height % factors[0] == width % factors[1] == 0 and channels < 20:
        return maker.space_to_depth(name, factors)
    if kind == "crop" and min(height, width) > 3:
        sides = [int(side) for side in rng.integers(0, 2, 4)]
        return maker.crop(name, (*sides[:3], max(sides[3], 1 - max(sides))))
    return maker.convolution(name, int(rng.integers(1, 30)), SAME, table=table)


def random_window(rng: np.random.Generator, shape: tuple[int, int, int]) -> Window:
    """A window that fits a map of this shape."""
    height, width, _ = shape
    while True:
        kernel = tuple(int(n) for n in rng.integers(1, 6, 2))
        window = Window(
            kernel,
            tuple(int(n) for n in rng.integers(1, 4, 2)),
            tuple(int(n) for n in rng.integers(1, 3, 2)),
            tuple(int(rng.integers(0, min(kernel[side % 2], 4))) for side in range(4)),
        )
        if min(window.output_size(height, width)) > 0:
            return window


# Quantised graphs with binary layers for tests.


class BinaryGraphMaker(GraphMaker):
    """As :class:`GraphMaker`, with layers that read and write binary tensors."""

    def to_bits(self, name: str) -> str:
        """Make a tensor binary: the layer that writes it gives signs."""
        tensor = self.graph.tensors[name]
        self.graph.tensors[name] = dataclasses.replace(tensor, bits=1, zero_point=0)
        return name

    def signs(self, source: str, *, table: bool = False) -> str:
        name = self._name()
        epilogue = CodeEpilogue(table=self.table() if table else None)
        self.graph.layers.append(Pointwise(f"signs_{name}", (source,), name, epilogue=epilogue))
        self._tensor(name, self.graph.tensors[source].shape, 0)
        return self.to_bits(name)

    def binary_convolution(
        self, source: str, channels: int, window: Window, *, pad: int = 1, bits: int = 1, table: bool = False
    ) -> str:
        height, width, depth = self.graph.tensors[source].shape
        shape = (*window.output_size(height, width), channels)
        weights = self.rng.choice([-1, 1], (channels, *window.kernel, depth)).astype(np.int8)
        count = np.sqrt(weights[0].size)
        bias = self.rng.integers(-int(count) - 1, int(count) + 2, channels, dtype=np.int32)
        name, zero_point = self._name(), 0
        multiplier = np.ones(channels, np.float32)
        if bits == 8:
            multiplier = (self.rng.uniform(20, 60, channels) / count).astype(np.float32)
            zero_point = int(self.rng.integers(-128, 128))
        else:
            # Some that are the same for all inputs.
            bias[self.rng.random(channels) < 0.05] = self.rng.choice([-(1 << 30), 1 << 30])
        epilogue = CodeEpilogue()
        if table:
            epilogue = epilogue.after(self._tensor(f"{name}_requantised", shape, zero_point), self.table())
        self.graph.layers.append(
            BinaryConvolution(
                f"binary_{name}",
                (source,),
                name,
                weights,
                bias,
                multiplier,
                window=window,
                epilogue=epilogue,
                pad=pad,
            )
        )
        self._tensor(name, shape, zero_point)
        return name if bits == 8 else self.to_bits(name)

    def binary_fully_connected(self, source: str, channels: int, **options) -> str:
        return self.binary_convolution(source, channels, Window(self.graph.tensors[source].shape[:2]), **options)


def random_binary_graph(seed: int, *, most_channels: int = 40, side: int = 9) -> Graph:
    """Some int8 layers and binary ones, with geometry at random."""
    rng = np.random.default_rng(seed)

    def channels() -> int:
        return int(rng.choice([1, 3, 7, 8, 9, 16, 24, 31, 33, most_channels, rng.integers(1, most_channels + 1)]))

    shape = (int(rng.integers(1, side + 1)), int(rng.integers(1, side + 1)), int(rng.choice([1, 2, 3, 5, 8, 17])))
    maker = BinaryGraphMaker(shape, seed=seed, zero_point=int(rng.integers(-128, 128)))
    name, outputs = "x", []
    for _ in range(int(rng.integers(2, 6))):
        tensor = maker.graph.tensors[name]
        window = random_window(rng, tensor.shape)
        table = rng.random() < 0.2
        if tensor.bits == 8:
            kind = rng.choice(["signs", "signs", "convolution", "convolution", "residual"])
            if kind == "signs":
                name = maker.signs(name, table=table)
            elif kind == "convolution":
                name = maker.to_bits(maker.convolution(name, channels(), window, table=table))
            else:
                bits = maker.signs(name)
                same = Window((3, 3), pads=(1, 1, 1, 1))
                beside = maker.binary_convolution(bits, tensor.shape[2], same, bits=8, pad=int(rng.choice([1, -1, 0])))
                name = maker.add(name, beside)
        else:
            kind = rng.choice(["convolution", "convolution", "codes", "pool", "fully connected", "concat", "slice"])
            pad = int(rng.choice([1, 1, -1, 0]))
            if kind == "pool":
                name = maker.to_bits(maker.max_pool(name, window))
            elif kind == "concat" and tensor.shape[2] % 8 == 0:
                beside = maker.binary_convolution(name, channels(), Window((1, 1)))
                name = maker.to_bits(maker.concat(name, beside, tables=False))
            elif kind == "slice" and tensor.shape[2] > 8:
                first = 8 * int(rng.integers(0, (tensor.shape[2] - 1) // 8 + 1))
                end = int(rng.choice([*range(first + 8, tensor.shape[2], 8), tensor.shape[2]]))
                name = maker.to_bits(maker.slice(name, first, end - first))
            elif kind == "fully connected":
                name = maker.binary_fully_connected(name, channels(), bits=int(rng.choice([1, 8])), table=table)
            else:
                bits = 8 if kind == "codes" else 1
                name = maker.binary_convolution(name, channels(), window, pad=pad, bits=bits, table=table)
        if rng.integers(4) == 0:
            outputs.append(name)
    return maker.finish(*dict.fromkeys([*outputs, name]))


# Plans of which a test knows no more than what it asks for.

State = TypeVar("State", bound=Network)


def plan_of(kind: type[State], before: Network, **known: Any) -> State:
    """A plan in this state, with what is known; all else is None, so that whoever asks for it fails."""
    names = {field.name for field in dataclasses.fields(kind)} - {field.name for field in dataclasses.fields(before)}
    return kind.of(before, **dict.fromkeys(names) | known)
