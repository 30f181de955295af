"""MobileNets: depthwise and pointwise convolutions in turn."""

from __future__ import annotations

from .builder import Net
from .convolutional import classifier
from .net_file import Codes
from .scope import Scope


def depthwise(net: Net, scope: Scope, x: Codes, activation: str) -> Codes:
    kernel, stride = scope.one_of(3, 3, 5), scope.one_of(1, 1, 2) if min(x.shape[1:]) >= 4 else 1
    return net.conv(x, x.channels, kernel, stride=stride, groups=x.channels, activation=activation)


def mobilenet_v1(net: Net, scope: Scope) -> None:
    side = scope.side()
    x = net.conv(net.input(3, side, side), scope.width(), 3, stride=scope.one_of(1, 2), activation="relu6")
    for _ in range(scope.depth(2, 4)):
        x = net.conv(depthwise(net, scope, x, "relu6"), scope.width(), activation="relu6")
    classifier(net, scope, x)


def mobilenet_v2(net: Net, scope: Scope) -> None:
    """Inverted residuals: wide inside, narrow and linear at their ends."""
    side = scope.side()
    x = net.conv(net.input(3, side, side), scope.one_of(3, 4, 6, 8), 3, activation="relu6")
    for _ in range(scope.depth(1, 3)):
        wide = net.conv(x, x.channels * scope.one_of(2, 3, 4), activation="relu6")
        y = depthwise(net, scope, wide, "relu6")
        y = net.conv(y, x.channels if scope.coin(0.7) else scope.one_of(4, 6, 8))
        x = net.add(x, y) if x.shape == y.shape else y
    classifier(net, scope, x)


def mobilenet_v3(net: Net, scope: Scope) -> None:
    """Inverted residuals with hard swish, without attention."""
    side = scope.side()
    x = net.conv(net.input(3, side, side), scope.one_of(4, 6, 8), 3, stride=scope.one_of(1, 2), activation="HardSwish")
    for _ in range(scope.depth(1, 3)):
        activation = scope.one_of("HardSwish", "relu")
        wide = net.conv(x, x.channels * scope.one_of(2, 3), activation=activation)
        y = net.conv(depthwise(net, scope, wide, activation), x.channels)
        x = net.add(x, y) if x.shape == y.shape else y
    x = net.conv(x, scope.width(), activation="HardSwish")
    classifier(net, scope, x)
