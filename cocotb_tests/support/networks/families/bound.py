"""Long runs of commands that are bound by results: more groups for the requantiser than steps, and no wait between."""

from __future__ import annotations

from .builder import Net
from .net_file import Codes
from .scope import Scope


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
