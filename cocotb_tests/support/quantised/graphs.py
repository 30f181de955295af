"""Quantised graphs for tests, layer by layer."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from cocotb_tests.support.quantised.evaluation import counts_inside
from lutterfly.golden.numerics.addition import UNSIGNED_OFFSET, sum_tables
from lutterfly.golden.numerics.multiplication import ProductScaling
from lutterfly.host.graph import (
    Add,
    AveragePool,
    CodeFinish,
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
        finish = CodeFinish(low, high)
        if table:
            finish = finish.after(self._tensor(f"{name}_requantised", shape, zero_point), self.table())
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
                finish=finish,
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
                finish=layer.finish,
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
        finish = CodeFinish(-120, 115)
        if table:
            inner = self._tensor(f"{name}_requantised", tensors[first].shape, zero_points[2])
            finish = finish.after(inner, self.table())
        self.graph.layers.append(Add(f"add_{name}", (first, second), name, *tables, fraction, offset, finish=finish))
        return self._tensor(name, tensors[first].shape, zero_points[2])

    def multiply(self, first: str, second: str, *, table: bool = False) -> str:
        """Of two maps, or of a map and a vector."""
        tensors = self.graph.tensors
        points, shape = (tensors[first].zero_point, tensors[second].zero_point), tensors[first].shape
        scaling = ProductScaling(
            int(self.rng.integers(-9999, 9999)), np.float32(2.0**-21 * self.rng.uniform(0.3, 2)), 3
        )
        spread = (1, 1) if tensors[second].shape == shape else shape[:2]
        name, finish = self._name(), CodeFinish(-120, 115)
        if table:
            finish = finish.after(self._tensor(f"{name}_requantised", shape, 3), self.table())
        layer = ElementwiseProduct(f"multiply_{name}", (first, second), name, points, scaling, spread, finish=finish)
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
        finish = CodeFinish(table=self.table() if table else None)
        self.graph.layers.append(MaxPool(f"pool_{name}", (source,), name, window=window, finish=finish))
        return self._tensor(name, (*window.output_size(*tensor.shape[:2]), tensor.shape[2]), tensor.zero_point)

    def pointwise(self, source: str) -> str:
        name = self._name()
        self.graph.layers.append(Pointwise(f"table_{name}", (source,), name, finish=CodeFinish(table=self.table())))
        return self._tensor(name, self.graph.tensors[source].shape, int(self.rng.integers(-128, 128)))

    def table(self) -> np.ndarray:
        return self.rng.integers(-128, 128, 256, dtype=np.int8)

    def finish(self, *outputs: str) -> Graph:
        self.graph.outputs = list(outputs)
        return self.graph
