"""Networks that real families seldom make: repeated commands, the smallest maps, more weights or bytes than fit,
long runs that are bound by results, random graphs and integer products."""

from __future__ import annotations

import itertools
import math

import numpy as np

from cocotb_tests.support.networks.families.builder import Codes, Net, Scope


def repeated_windows(net: Net, scope: Scope) -> None:
    """One small convolution many times side by side on one map, so that no command waits for another one."""
    lanes, is_depthwise, kernel = scope.config.array.lanes, scope.coin(), scope.one_of(2, 2, 3)
    side = scope.one_of(3, 4, 6)
    x = net.input(lanes if is_depthwise else scope.one_of(2, 4, lanes), side, side)
    if is_depthwise:
        results = [net.conv(x, lanes, kernel, groups=lanes, padded=False) for _ in range(scope.depth(10, 24))]
    else:
        results = [net.conv(x, x.channels) for _ in range(scope.depth(10, 24))]
    _finish(net, scope, results)


def repeated_elements(net: Net, scope: Scope) -> None:
    """Tables of one map, or sums of neighbouring channels, many times side by side."""
    side, count = scope.one_of(2, 3, 4), scope.depth(10, 24)
    channels = scope.one_of(2, 4, scope.config.array.lanes)
    if scope.coin():
        x = net.input(channels, side, side)
        results = [net.pointwise(x, scope.one_of("LeakyRelu", "Sigmoid", "Tanh")) for _ in range(count)]
    else:
        parts = net.split(net.input(channels * count, side, side), count)
        first = net.add(parts[-1], parts[0])
        # All of one scale, so that they have the same tables.
        results = [first, *(net.add(*pair, like=first) for pair in itertools.pairwise(parts))]
    _finish(net, scope, results)


def _finish(net: Net, scope: Scope, results: list[Codes]) -> None:
    if scope.coin(0.6):
        net.output(net.concat(results))
    else:
        for z in results:
            net.output(z)


def smallest(net: Net, scope: Scope) -> None:
    """Maps of one pixel and few more, of few channels: commands of one window."""
    channels, sides = scope.depth(1, 5), scope.one_of((1, 1), (1, 1), (1, 2), (2, 2), (3, 1))
    x, other = net.input(channels, *sides), net.input(channels, *sides)
    x = net.add(x, other)
    for _ in range(scope.depth(3, 8)):
        kind = scope.one_of("add", "conv", "depthwise", "average", "table", "concat")
        if kind == "add":
            x = net.add(x, net.conv(x, x.channels, scope.one_of(1, 3)) if scope.coin() else x)
        elif kind == "conv":
            x = net.conv(x, scope.one_of(1, 2, 3, 9), scope.one_of(1, 3))
        elif kind == "depthwise":
            x = net.conv(x, x.channels, 3, groups=x.channels)
        elif kind == "average":
            x = net.global_average(x)
        elif kind == "table":
            x = net.pointwise(x, "HardSwish")
        else:
            x = net.concat([x] * 2)
    net.output(x)


def heavy(net: Net, scope: Scope) -> None:
    """More weights than the memory holds: some of them come again in every inference."""
    budget = scope.config.memory.weight_bytes
    width = math.isqrt(budget // scope.one_of(1, 2, 3))
    if scope.coin(0.7):
        x = net.input(width)
        for _ in range(3):
            x = net.dense(x, width + scope.depth(0, 3), activation=scope.one_of("relu", ""))
    else:
        channels = max(4, math.isqrt(budget // 18))
        x = net.input(4, 3, 3)
        for _ in range(3):
            x = net.conv(x, channels, 3, activation="relu")
    net.output(x)


def at_the_bus(net: Net, scope: Scope) -> None:
    """Layers with little to do for each byte of a large input or output."""
    lanes = scope.config.array.lanes
    channels = scope.one_of(lanes, 2 * lanes, lanes // 2)
    side = min(40, math.isqrt(max(16, scope.one_of(1, 2, 4) * scope.config.memory.feature_bytes // (2 * channels))))
    x = net.input(channels, side, side)
    if scope.coin(0.4):
        x = net.conv(x, channels)
    for _ in range(scope.depth(1, 3)):
        kind = scope.one_of("depthwise", "depthwise", "average", "add", "maximum", "conv", "slice")
        if kind == "average":
            x = net.average(x, 3, stride=scope.one_of(1, 2), padded=True)
        elif kind == "depthwise":
            x = net.conv(x, x.channels, 3, stride=scope.one_of(1, 2, 3), groups=x.channels)
        elif kind == "add":
            x = net.add(x, net.input(*x.shape))
        elif kind == "maximum":
            x = net.maximum(x, scope.one_of(1, 2, 3), stride=scope.one_of(2, 3))
        elif kind == "slice":
            x = net.pointwise(net.slice(x, 1, x.channels), "LeakyRelu")
        else:
            x = net.conv(x, 2, stride=scope.one_of(1, 2))
        if min(x.shape[1:]) < 6 or x.channels < 3:
            break
    net.output(x)
    # Without a layer that tells rows and columns from channels a map is one pixel, which cannot be cut.
    net.output(net.conv(x, 2))


def averages(net: Net, scope: Scope) -> None:
    """Averages of windows, whose border counts or does not, of odd maps."""
    side = scope.depth(5, 12)
    x = net.conv(net.input(2, side, side + scope.depth(0, 2)), scope.width(), 3, activation="relu")
    for _ in range(scope.depth(1, 3)):
        if min(x.shape[1:]) < 3:
            break
        x = net.average(x, 3, stride=scope.one_of(1, 2), padded=scope.coin())
        if scope.coin():
            x = net.conv(x, x.channels, 3, groups=x.channels)
    net.output(x)


# Long runs of commands that are bound by results: more groups for the requantiser than steps, and no wait between.


def _map(net: Net, scope: Scope, channels: int, most: int = 64) -> Codes:
    """An input that is wide and high in proportion to its channels."""
    side = scope.one_of(*(side for side in (8, 16, 24, 40, 64) if side <= most))
    return net.input(channels, side, scope.one_of(side, max(2, side // 4)))


def copies(net: Net, scope: Scope) -> None:
    """One map several times side by side."""
    if scope.coin():
        x = net.input(scope.one_of(2, 3, 8, 16), scope.one_of(16, 30, 40), scope.one_of(4, 16, 40))
    else:
        x = _map(net, scope, scope.one_of(1, 2, 5), 40)
    y = net.concat([x] * scope.one_of(2, 4, 8, 16))
    net.output(y)
    if scope.coin(0.3):
        net.output(net.conv(y, scope.one_of(2, 4)))


def widening(net: Net, scope: Scope) -> None:
    """1x1 convolutions of few channels to more."""
    lanes = scope.config.array.lanes
    x = _map(net, scope, scope.one_of(1, 2, 4, lanes))
    for _ in range(scope.depth(1, 3)):
        x = net.conv(x, scope.one_of(lanes, 2 * lanes, 3 * lanes, 8))
        if scope.coin(0.4):
            x = net.conv(x, scope.one_of(2, 4, lanes))
    net.output(x)


def tables(net: Net, scope: Scope) -> None:
    """Functions of single elements, one after the other and side by side."""
    x = _map(net, scope, scope.one_of(1, 3, 8, 17), 24)
    branches = []
    for kind in ("Sigmoid", "Tanh", "LeakyRelu", "HardSwish", "Elu")[: scope.depth(2, 5)]:
        y = net.pointwise(x, kind)
        branches.append(net.pointwise(y, "LeakyRelu") if scope.coin(0.3) else y)
    if scope.coin():
        net.output(net.concat(branches))
    if not scope.holds(2 * x.size):
        # Without a layer that tells rows and columns from channels a map is one pixel, which cannot be cut.
        net.output(net.conv(x, 2))
    for y in branches:
        net.output(y)


def side_by_side(net: Net, scope: Scope) -> None:
    """Heads of few channels on one map, sums and tables between them."""
    x = _map(net, scope, scope.one_of(2, 4, 8), 24)
    heads = []
    for _ in range(scope.depth(6, 16)):
        kind = scope.one_of("conv", "conv", "table", "maximum", "sum")
        if kind == "conv":
            heads.append(net.conv(x, x.channels * scope.one_of(1, 2, 3)))
        elif kind == "table":
            heads.append(net.pointwise(x, scope.one_of("Sigmoid", "LeakyRelu")))
        elif kind == "maximum":
            heads.append(net.maximum(x, 2))
        else:
            heads.append(net.add(x, next((h for h in heads if h.shape == x.shape), x)))
    for head in heads:
        net.output(head)


def channels_apart(net: Net, scope: Scope) -> None:
    """Channels taken apart, computed one by one and put side by side again, in another order."""
    parts = scope.one_of(2, 3, 4, 8)
    x = _map(net, scope, parts * scope.one_of(1, 2, 4), 24)
    pieces = net.split(x, parts)
    done = [net.conv(piece, scope.one_of(2, 4, 8)) if scope.coin(0.6) else piece for piece in pieces]
    y = net.concat(done[::-1])
    net.output(net.slice(y, 1, y.channels - 1) if scope.coin() and y.channels > 2 else y)
    net.output(net.conv(y, scope.width()))


# Random graphs of supported operators with many branches.

#: Of each, about how often it is drawn.
_KINDS = {
    "conv": 6,
    "pointwise": 4,
    "depthwise": 2,
    "grouped": 1,
    "strided": 2,
    "add": 4,
    "concat": 4,
    "maximum": 2,
    "table": 2,
    "split": 1,
    "slice": 1,
    "pad": 1,
    "average": 1,
}
_MOST_CHANNELS = 48


def random_graph(net: Net, scope: Scope) -> None:
    """Each operator reads any earlier tensor; what nothing reads at the end is an output."""
    side, shape_of = scope.side(large=0.08), scope.width()
    inputs = [net.input(shape_of, side, side) for _ in range(scope.one_of(1, 1, 2))]
    pool = inputs if len(inputs) == 1 else [*inputs, net.concat(inputs)]
    unread: dict[str, Codes] = {}
    kinds = [kind for kind, weight in _KINDS.items() for _ in range(weight)]
    for _ in range(scope.depth(4, 18)):
        read = _choose(scope, pool)
        for y in apply(net, scope, scope.one_of(*kinds), read, pool, unread):
            pool.append(y)
            unread[y.name] = y
        unread.pop(read.name, None)
    for x in unread.values():
        net.output(x)


def _choose(scope: Scope, pool: list[Codes]) -> Codes:
    """A late one rather than an early one."""
    return pool[-1] if scope.coin(0.4) else scope.one_of(*pool)


def apply(net: Net, scope: Scope, kind: str, x: Codes, pool: list[Codes], unread: dict[str, Codes]) -> list[Codes]:
    """The results of one operator; if it does not suit ``x``, of a 1x1 convolution."""
    small, width = min(x.shape[1:]), scope.width()
    if kind in ("add", "concat"):
        others = [y for y in pool if (y.shape == x.shape if kind == "add" else y.shape[1:] == x.shape[1:])]
        if kind == "add":
            other = scope.one_of(*others)
            unread.pop(other.name, None)
            return [net.add(x, other, activation=scope.one_of("", "relu"))]
        parts = [x, *(scope.one_of(*others) for _ in range(scope.depth(1, 3)))]
        if sum(part.channels for part in parts) <= _MOST_CHANNELS:
            for part in parts:
                unread.pop(part.name, None)
            return [net.concat(parts)]
    elif kind == "conv":
        like = scope.one_of(*pool) if scope.coin(0.4) else None
        return [net.conv(x, width, scope.one_of(1, 2, 3), dilation=scope.one_of(1, 1, 2), like=like)]
    elif kind == "depthwise":
        return [net.conv(x, x.channels, 3, groups=x.channels, activation=scope.one_of("", "relu", "relu6"))]
    elif kind == "grouped" and x.channels % 2 == 0:
        return [net.conv(x, 2 * width, scope.one_of(1, 3), groups=2)]
    elif kind == "strided" and small >= 4:
        return [net.conv(x, width, scope.one_of(2, 3), stride=2, padded=scope.coin(), activation="relu")]
    elif kind == "maximum" and small >= 3:
        return [net.maximum(x, scope.one_of(2, 3), stride=scope.one_of(1, 2), padded=scope.coin(), ceil=scope.coin())]
    elif kind == "table":
        return [net.pointwise(x, scope.one_of("Sigmoid", "Tanh", "LeakyRelu", "HardSwish", "Relu"))]
    elif kind == "split" and x.channels % 2 == 0 and x.channels > 2:
        return net.split(x, 2)
    elif kind == "slice" and x.channels > 2:
        return [net.slice(x, 1, x.channels - scope.one_of(0, 1))]
    elif kind == "pad":
        return [net.conv(net.pad(x, 1), width, 3, padded=False)]
    elif kind == "average" and small >= 3:
        return [net.average(x, 3, stride=scope.one_of(1, 2))]
    return [net.conv(x, width)]


# Integer products: ConvInteger and MatMulInteger, whose sums of few values the host adds up from codes.


def integer_products(net: Net, scope: Scope) -> None:
    """Quantised layers, and products of ternary weights after them."""
    if scope.coin():
        side = scope.depth(3, 10)
        x = net.conv(net.input(2, side, side), scope.one_of(2, 4, 5), 3, activation="relu")
        weights = scope.rng.integers(-1, 2, (scope.one_of(1, 3, 4), x.channels, *scope.one_of((1, 1), (3, 3))))
        net.integer_product("ConvInteger", x, weights.astype(np.int8))
    else:
        x = net.dense(net.input(scope.one_of(6, 20)), scope.one_of(4, 9, 16), activation="relu")
        weights = scope.rng.integers(-1, 2, (x.channels, scope.one_of(1, 3, 5)))
        net.integer_product("MatMulInteger", x, weights.astype(np.int8))
