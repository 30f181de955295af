"""Classifiers: chains, DenseNet, Inception, ResNet, ResNeXt, SqueezeNet."""

from __future__ import annotations

from .builder import Net
from .net_file import Codes
from .scope import Scope


def chain(net: Net, scope: Scope) -> None:
    """Many small layers in a row."""
    side = scope.side(large=0.05)
    x = net.input(scope.width(), side, side)
    for _ in range(scope.depth(8, 24)):
        kind = scope.one_of("conv", "conv", "conv", "pointwise", "maximum", "table")
        if kind == "conv":
            x = net.conv(x, scope.width(), scope.one_of(1, 1, 3), activation=scope.one_of("", "relu", "Sigmoid"))
        elif kind == "pointwise":
            x = net.conv(x, scope.width(), activation="relu6")
        elif kind == "maximum":
            x = net.maximum(x, scope.one_of(2, 3), stride=scope.one_of(1, 2), padded=True)
        else:
            x = net.pointwise(x, scope.one_of("LeakyRelu", "HardSwish", "Tanh", "Elu"))
    net.output(x)


def classifier(net: Net, scope: Scope, x: Codes) -> None:
    """The usual end; the average of a map needs it as a whole."""
    if scope.coin(0.7) and scope.holds(x.size):
        x = net.global_average(x)
        x = net.dense(net.flatten(x), scope.depth(2, 12)) if scope.coin() else net.conv(x, scope.depth(2, 12))
    net.output(x)


def densenet(net: Net, scope: Scope) -> None:
    """Every layer reads all before it; with or without bottlenecks and transitions."""
    side = scope.side()
    x = net.conv(net.input(3, side, side), scope.width(), 3, activation="relu")
    growth, has_bottleneck, shared = scope.one_of(2, 4, 6, 12), scope.coin(), scope.coin(0.6)
    for _ in range(scope.depth(1, 2)):
        for _ in range(scope.depth(2, 4)):
            y = net.conv(x, 2 * growth, activation="relu") if has_bottleneck else x
            y = net.conv(y, growth, 3, activation="" if shared else "relu", like=x if shared else None)
            x = net.concat([x, y])
        if scope.coin() and min(x.shape[1:]) >= 4:
            x = net.maximum(net.conv(x, max(2, x.channels // 2)), 2, stride=2)
    classifier(net, scope, x)


def inception(net: Net, scope: Scope) -> None:
    """Branches of several kernels side by side."""
    side = scope.side()
    x = net.conv(net.input(3, side, side), scope.width(), 3, stride=scope.one_of(1, 2), activation="relu")
    for _ in range(scope.depth(1, 2)):
        branches = [net.conv(x, scope.width(), activation="relu")]
        like = branches[0] if scope.coin() else None
        activation = "" if like else "relu"
        squeezed = net.conv(x, scope.one_of(2, 4), activation="relu")
        branches.append(net.conv(squeezed, scope.width(), 3, activation=activation, like=like))
        if scope.coin():
            branches.append(net.conv(net.conv(x, 3), scope.one_of(2, 4, 8), 5, activation=activation, like=like))
        else:
            row = net.conv(net.conv(x, 4), 4, (1, 3))
            branches.append(net.conv(row, scope.width(), (3, 1), activation=activation, like=like))
        branches.append(
            net.conv(net.maximum(x, 3, padded=True), scope.one_of(2, 3, 8), activation=activation, like=like)
        )
        x = net.concat(branches)
        if scope.coin(0.3):
            x = net.maximum(x, 3, stride=2, padded=True)
    classifier(net, scope, x)


def resnet(net: Net, scope: Scope, groups: int = 1) -> None:
    """Residual blocks, plain or with a bottleneck; a 1x1 convolution where size or channels change."""
    side = scope.side()
    width = groups * scope.one_of(2, 3, 4) if groups > 1 else scope.width()
    x = net.conv(net.input(3, side, side), width, 3, activation="relu")
    for _ in range(scope.depth(1, 3)):
        stride, out = scope.one_of(1, 1, 2), scope.one_of(width, width, 2 * width)
        if min(x.shape[1:]) < 4:
            stride = 1
        if scope.coin() or groups > 1:
            y = net.conv(x, width, activation="relu")
            y = net.conv(y, width, 3, stride=stride, groups=groups, activation="relu")
            y = net.conv(y, out)
        else:
            y = net.conv(x, out, 3, stride=stride, activation="relu")
            y = net.conv(y, out, 3)
        shortcut = x if stride == 1 and x.channels == out else net.conv(x, out, stride=stride)
        x = net.add(y, shortcut, activation=scope.one_of("relu", "relu", ""))
    classifier(net, scope, x)


def resnext(net: Net, scope: Scope) -> None:
    """Residual blocks with grouped convolutions."""
    resnet(net, scope, groups=scope.one_of(2, 3, 4, 8))


def squeezenet(net: Net, scope: Scope) -> None:
    """Fire modules: a narrow layer, and two wide ones side by side."""
    side = scope.side()
    x = net.conv(net.input(3, side, side), scope.width(), 3, stride=scope.one_of(1, 2), activation="relu")
    for number in range(scope.depth(1, 3)):
        squeezed = net.conv(x, scope.one_of(2, 3, 4, 8), activation="relu")
        left = net.conv(squeezed, scope.width(), activation="relu")
        right = net.conv(squeezed, left.channels, 3, activation="relu", like=left)
        if scope.coin():
            right = net.conv(squeezed, left.channels, 3, like=left)
        x = net.concat([left, right])
        if number == 0 and min(x.shape[1:]) >= 4:
            x = net.maximum(x, 3, stride=2, ceil=scope.coin())
    classifier(net, scope, x)
