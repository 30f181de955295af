"""Two activations that become one, and elements that move: attention, gates, upsampling, shuffles, crops."""

from __future__ import annotations

from .builder import Net
from .convolutional import classifier
from .net_file import Codes
from .scope import Scope


def _begin(net: Net, scope: Scope, least: int = 4) -> Codes:
    side = max(scope.side(large=0.05), least)
    return net.conv(net.input(scope.one_of(1, 3), side, side), scope.width(), 3, activation=scope.one_of("relu", ""))


def _pair(net: Net, scope: Scope, a: Codes, b: Codes) -> Codes:
    """Two maps of one shape become one; QOperator form has sums and products alone."""
    kind = scope.one_of("Mul", "Mul", "Add", *(("Sub", "Max", "Min") if net.form.qdq else ()))
    activation = scope.one_of("", "", "relu") if net.form.qdq else ""
    if kind == "Mul":
        product = net.multiply(a, b, activation=activation)
        return net.pointwise(product, "Tanh") if scope.coin(0.2) else product
    return net.add(a, b, activation=activation) if kind == "Add" else net.combine(kind, a, b, activation=activation)


def squeeze_excite(net: Net, scope: Scope) -> None:
    """Each channel is weighted by what the whole map says of it; the vector is first or second."""
    x = _begin(net, scope)
    for _ in range(scope.depth(1, 3)):
        y = net.conv(x, x.channels, scope.one_of(1, 3), groups=scope.one_of(1, x.channels), activation="relu")
        vector = net.conv(net.global_average(y), scope.one_of(1, 2, 4), activation="relu")
        vector = net.pointwise(net.conv(vector, y.channels), scope.one_of("Sigmoid", "HardSigmoid"))
        weighted = net.multiply(y, vector) if scope.coin() else net.multiply(vector, y)
        x = net.add(x, weighted) if scope.coin() else weighted
    classifier(net, scope, x)


def gated(net: Net, scope: Scope) -> None:
    """Gates and differences of maps, one behind the other; some are read twice, and some are outputs."""
    maps = [_begin(net, scope)]
    for _ in range(scope.depth(2, 5)):
        x = scope.one_of(*maps)
        a = net.conv(x, x.channels, scope.one_of(1, 3), activation=scope.one_of("", "Tanh", "Sigmoid"))
        b = scope.one_of(x, net.conv(x, x.channels), *maps)
        maps.append(_pair(net, scope, a, b) if a.shape == b.shape else a)
    if scope.coin():
        net.output(maps[len(maps) // 2])
    classifier(net, scope, maps[-1])


def upsampling_unet(net: Net, scope: Scope) -> None:
    """Down by pooling and up by repetition, with what there was on the way down beside it or combined with it."""
    x, skipped = _begin(net, scope, 8), []
    for _ in range(scope.depth(1, 2)):
        side = min(x.shape[1:]) // 2 * 2
        x = net.crop(x, 0, side) if x.shape[1:] != (side, side) else x
        skipped.append(x)
        x = net.conv(net.maximum(x, 2, stride=2), x.channels + scope.one_of(0, 1, 4), 3, activation="relu")
    for level in reversed(skipped):
        x, beside = net.upsample(x, 2), level
        if beside.shape[1:] != x.shape[1:]:
            beside = net.crop(beside, 0, x.shape[1])
        x = net.concat([x, beside]) if scope.coin() else _pair(net, scope, net.conv(x, beside.channels), beside)
        x = net.conv(x, scope.width(), scope.one_of(1, 3), activation="relu")
    net.output(net.conv(x, scope.one_of(1, 2, 5)))


def shuffled(net: Net, scope: Scope) -> None:
    """Grouped convolutions whose channels are shuffled between them, or split and joined as in ShuffleNet v2."""
    x = _begin(net, scope)
    groups = scope.one_of(2, 2, 4)
    x = net.conv(x, groups * scope.one_of(2, 4, 5))
    for _ in range(scope.depth(1, 3)):
        if scope.coin():
            y = net.shuffle(net.conv(x, x.channels, groups=groups, activation="relu"), groups)
            x = _pair(net, scope, x, y) if scope.coin() else y
        else:
            kept, taken = net.split(x, 2)
            taken = net.conv(taken, taken.channels, 3, groups=taken.channels)
            x = net.shuffle(net.concat([kept, net.conv(taken, kept.channels, activation="relu")]), 2)
    classifier(net, scope, x)


def cropped(net: Net, scope: Scope) -> None:
    """Crops of maps, made larger again or combined with one another."""
    x = _begin(net, scope, 6)
    for _ in range(scope.depth(1, 3)):
        side = min(x.shape[1:])
        size = scope.depth(max(side // 2, 2), side - 1) if side > 3 else side
        first, second = (scope.depth(0, side - size) for _ in range(2))
        a, b = net.crop(x, first, first + size), net.crop(x, second, second + size)
        x = _pair(net, scope, a, b) if scope.coin(0.7) else net.upsample(net.conv(a, scope.width()), scope.one_of(2, 3))
        x = net.conv(x, scope.width(), scope.one_of(1, 3), activation=scope.one_of("", "relu"))
    net.output(x)
