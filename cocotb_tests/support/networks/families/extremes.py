"""What real families seldom make: the same command many times, the smallest maps, more weights or bytes than fit."""

from __future__ import annotations

import itertools
import math

from .builder import Net
from .net_file import Codes
from .scope import Scope


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
