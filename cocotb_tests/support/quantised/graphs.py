"""Quantised graphs for tests, and their evaluation in float32, apart from everything under test."""

from __future__ import annotations

import numpy as np

from lutterfly.golden.numerics.addition import UNSIGNED_OFFSET, sum_tables
from lutterfly.host.graph import (
    Add,
    AveragePool,
    BinaryConvolution,
    CodeFinish,
    Concat,
    Convolution,
    Graph,
    MaxPool,
    Pad,
    Pointwise,
    Slice,
    Tensor,
    View,
    Window,
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
        counts = {int(count) for row in _counts(window, size) for count in row}
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


def evaluate_float(graph: Graph, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every tensor that a layer writes, int8[height, width, channels], by the formulas of ``docs/numerics.md`` in
    float32."""
    tensors = dict(inputs)
    for layer in graph.layers:
        codes = tensors[layer.input]
        if isinstance(layer, Convolution | AveragePool | Pad):
            zero_point = graph.tensors[layer.input].zero_point
            border = layer.pad if isinstance(layer, BinaryConvolution) else 0
            taps = _taps(codes.astype(np.int64) - zero_point, layer.window, border)
            inputs = layer.weights.shape[3]
            acc = np.stack(
                [
                    np.einsum("tyxc,tc->yx", taps[..., group * inputs : (group + 1) * inputs], kernel)
                    for group, kernel in (
                        (
                            output * layer.groups // len(layer.weights),
                            weights.reshape(len(taps), inputs).astype(np.int64),
                        )
                        for output, weights in enumerate(layer.weights)
                    )
                ],
                axis=-1,
            )
            acc = (acc + layer.bias).astype(np.int32)
            target = graph.tensors[layer.finish.inner or layer.output].zero_point
            multiplier = layer.multiplier
            if isinstance(layer, AveragePool) and layer.multipliers:
                counts = _counts(layer.window, tensors[layer.input].shape[:2])
                multiplier = np.vectorize(layer.multipliers.get, otypes=[np.float32])(counts)[..., None]
            scaled = acc.astype(np.float32) * multiplier
            codes = (
                np.rint(np.clip(scaled, layer.finish.low - target, layer.finish.high - target)).astype(np.int64)
                + target
            ).astype(np.int8)
        elif isinstance(layer, Add):
            first, second = (
                table[tensors[name].astype(np.int64) + 128]
                for name, table in zip(layer.inputs, (layer.first, layer.second), strict=True)
            )
            total = (first + second).astype(np.float32) * np.float32(2.0**-layer.fraction)
            codes = np.clip(np.rint(total) + layer.offset, layer.finish.low, layer.finish.high).astype(np.int8)
        elif isinstance(layer, Concat):
            looked_up = [
                tensors[name] if table is None else table[tensors[name].astype(np.int64) + 128]
                for name, table in zip(layer.inputs, layer.tables, strict=True)
            ]
            codes = np.concatenate(looked_up, axis=2)
        elif isinstance(layer, Slice):
            codes = codes[..., layer.first : layer.first + layer.channels]
        elif isinstance(layer, MaxPool):
            codes = _taps(codes.astype(np.int64), layer.window, -128).max(axis=0).astype(np.int8)
        if layer.table is not None:
            codes = layer.table[codes.astype(np.int64) + 128]
        if graph.tensors[layer.output].bits == 1:
            codes = np.where(codes < 0, -1, 1).astype(np.int8)
        tensors[layer.output] = codes
    return tensors


def _counts(window: Window, size: tuple[int, int]) -> np.ndarray:
    """How many elements of each window lie in the map, int64[output rows, output columns]."""
    return _taps(np.ones((*size, 1), np.int64), window, 0).sum(axis=0)[..., 0]


def _taps(codes: np.ndarray, window: Window, pad: int) -> np.ndarray:
    """int64[taps, output rows, output columns, channels]."""
    top, left, bottom, right = window.pads
    rows, columns = window.output_size(*codes.shape[:2])
    padded = np.pad(codes, ((top, bottom), (left, right), (0, 0)), constant_values=pad)
    (sy, sx), (dy, dx) = window.stride, window.dilation
    return np.stack(
        [
            padded[i * dy : i * dy + (rows - 1) * sy + 1 : sy, j * dx : j * dx + (columns - 1) * sx + 1 : sx]
            for i in range(window.kernel[0])
            for j in range(window.kernel[1])
        ]
    )


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
