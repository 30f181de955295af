"""Random quantised graphs."""

from __future__ import annotations

import numpy as np

from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.host.graph import Graph, Window

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
