"""Random graphs of supported operators with many branches."""

from __future__ import annotations

from .builder import Net
from .net_file import Codes
from .scope import Scope

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
