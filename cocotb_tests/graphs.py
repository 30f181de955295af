"""Quantised graphs for tests, and their evaluation in float32, apart from everything under test."""
from __future__ import annotations

import numpy as np

from lutterfly.host.graph import Convolution, Graph, MaxPool, Pointwise, Tensor, View, Window


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

    def _name(self) -> str:
        return f"t{len(self.graph.layers)}"

    def convolution(
        self, source: str, channels: int, window: Window, *, table: bool = False, zero_point: int | None = None
    ) -> str:
        height, width, depth = self.graph.tensors[source].shape
        shape = (*window.output_size(height, width), channels)
        weights = self.rng.integers(-128, 128, (channels, *window.kernel, depth), dtype=np.int8)
        bias = self.rng.integers(-2000, 2000, channels, dtype=np.int32)
        spread = 40 / (74 * 74 * np.sqrt(weights[0].size))
        multiplier = (self.rng.uniform(0.5, 2, channels) * spread).astype(np.float32)
        zero_point = int(self.rng.integers(-128, 128)) if zero_point is None else zero_point
        low, high = (
            int(self.rng.choice(codes))
            for codes in ([-128, min(-100, zero_point), zero_point], [zero_point, max(100, zero_point), 127])
        )
        name = self._name()
        requantised = self._tensor(f"{name}_requantised", shape, zero_point) if table else name
        self.graph.layers.append(Convolution(f"conv_{name}", (source,), name, weights, bias, multiplier, window, low,
                                             high, requantised, self.table() if table else None))
        return self._tensor(name, shape, int(self.rng.integers(-128, 128)) if table else zero_point)

    def fully_connected(self, source: str, channels: int, **options) -> str:
        return self.convolution(source, channels, Window(self.graph.tensors[source].shape[:2]), **options)

    def max_pool(self, source: str, window: Window, *, table: bool = False) -> str:
        tensor = self.graph.tensors[source]
        name = self._name()
        applied = self.table() if table else None
        self.graph.layers.append(MaxPool(f"pool_{name}", (source,), name, window, table=applied))
        return self._tensor(name, (*window.output_size(*tensor.shape[:2]), tensor.shape[2]), tensor.zero_point)

    def pointwise(self, source: str) -> str:
        name = self._name()
        self.graph.layers.append(Pointwise(f"table_{name}", (source,), name, self.table()))
        return self._tensor(name, self.graph.tensors[source].shape, int(self.rng.integers(-128, 128)))

    def table(self) -> np.ndarray:
        return self.rng.integers(-128, 128, 256, dtype=np.int8)

    def finish(self, *outputs: str) -> Graph:
        self.graph.outputs = list(outputs)
        return self.graph


def evaluate_float(graph: Graph, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every tensor that a layer writes, int8[height, width, channels], by the formulas of ``docs/numerics.md`` in
    float32."""
    tensors = dict(inputs)
    for layer in graph.layers:
        codes = tensors[layer.input]
        if isinstance(layer, Convolution):
            zero_point = graph.tensors[layer.input].zero_point
            taps = _taps(codes.astype(np.int64) - zero_point, layer.window, 0)
            acc = np.einsum(
                "tyxc,otc->yxo", taps, layer.weights.reshape(len(layer.weights), len(taps), -1).astype(np.int64)
            )
            acc = (acc + layer.bias).astype(np.int32)
            target = graph.tensors[layer.requantised or layer.output].zero_point
            scaled = acc.astype(np.float32) * layer.multiplier
            codes = (
                np.rint(np.clip(scaled, layer.low - target, layer.high - target)).astype(np.int64) + target
            ).astype(np.int8)
        elif isinstance(layer, MaxPool):
            codes = _taps(codes.astype(np.int64), layer.window, -128).max(axis=0).astype(np.int8)
        if getattr(layer, "table", None) is not None:
            codes = layer.table[codes.astype(np.int64) + 128]
        tensors[layer.output] = codes
    return tensors


def _taps(codes: np.ndarray, window: Window, pad: int) -> np.ndarray:
    """int64[taps, output rows, output columns, channels]."""
    top, left, bottom, right = window.pads
    rows, columns = window.output_size(*codes.shape[:2])
    padded = np.pad(codes, ((top, bottom), (left, right), (0, 0)), constant_values=pad)
    (sy, sx), (dy, dx) = window.stride, window.dilation
    return np.stack([padded[i * dy:i * dy + (rows - 1) * sy + 1:sy, j * dx:j * dx + (columns - 1) * sx + 1:sx]
                     for i in range(window.kernel[0]) for j in range(window.kernel[1])])


def random_graph(seed: int) -> Graph:
    """A few layers with geometry at random, small enough for every configuration."""
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 11)), int(rng.integers(1, 11)), int(rng.choice([1, 2, 3, 5, 8, 17])))
    maker = GraphMaker(shape, seed=seed, zero_point=int(rng.integers(-128, 128)))
    name = "x"
    outputs = []
    for _ in range(int(rng.integers(1, 5))):
        kind = rng.choice(["convolution", "convolution", "pool", "table", "fully connected"])
        window = random_window(rng, maker.graph.tensors[name].shape)
        table = bool(rng.integers(2)) and len(maker.graph.layers) < 4
        if kind == "pool":
            name = maker.max_pool(name, window, table=table)
        elif kind == "table":
            name = maker.pointwise(name)
        elif kind == "fully connected":
            name = maker.fully_connected(name, int(rng.integers(1, 20)), table=table)
        else:
            name = maker.convolution(name, int(rng.integers(1, 20)), window, table=table)
        if rng.integers(4) == 0:
            outputs.append(name)
    return maker.finish(*dict.fromkeys([*outputs, name]))


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
