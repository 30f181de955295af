"""Detectors and segmentation: heads side by side, pyramids of pooling, maps that are read again much later."""

from __future__ import annotations

from .builder import Net
from .net_file import Codes
from .scope import Scope


def wide_heads(net: Net, scope: Scope) -> None:
    """Many 1x1 convolutions of one map, as outputs or side by side."""
    side = scope.side()
    x = net.input(scope.width(), side, side)
    if scope.coin():
        x = net.conv(x, scope.width(), 3, activation="relu")
    count, channels = scope.one_of(4, 8, 12, 20), scope.width()
    like = net.conv(x, channels)
    heads = [like] + [net.conv(x, channels, like=like if scope.coin(0.7) else None) for _ in range(count - 1)]
    if scope.coin(0.4):
        net.output(net.concat(heads))
    else:
        for head in heads:
            net.output(head)


def pyramid(net: Net, scope: Scope, x: Codes) -> Codes:
    """Max pooling of several sizes side by side (SPP), or one after the other (SPPF)."""
    x = net.conv(x, scope.one_of(2, 4, 8), activation="relu")
    levels = [x]
    for kernel in (5, 9, 13)[: scope.depth(2, 3)]:
        levels.append(
            net.maximum(levels[-1] if scope.coin() else x, min(kernel, 2 * (min(x.shape[1:]) // 2) + 1), padded=True)
        )
    return net.concat(levels)


def partial_stage(net: Net, scope: Scope, x: Codes) -> Codes:
    """A cross stage partial block: half of the channels through residual layers, all of them side by side after."""
    x = net.conv(x, 2 * scope.one_of(2, 4, 8))
    kept, y = net.split(x, 2)
    parts = [kept, y]
    for _ in range(scope.depth(1, 2)):
        z = net.conv(net.conv(y, y.channels, 3, activation="relu"), y.channels, 3)
        y = net.add(y, z) if scope.coin(0.7) else z
        parts.append(y)
    return net.conv(net.concat(parts), scope.width(), activation=scope.one_of("relu", "HardSwish"))


def yolo(net: Net, scope: Scope) -> None:
    """A backbone, and at two resolutions a head of boxes, one of scores, side by side."""
    side = scope.one_of(8, 12, 16, 24)
    x = net.conv(net.input(3, side, side), scope.width(), 3, stride=scope.one_of(1, 2), activation="relu")
    fine = partial_stage(net, scope, x)
    coarse = net.conv(fine, scope.width(), 3, stride=2, activation="relu")
    if scope.coin():
        coarse = pyramid(net, scope, coarse)
    for level in (fine, coarse):
        boxes, scores, tower = scope.one_of(4, 8), scope.one_of(1, 3, 5), level
        if scope.coin():
            tower = net.conv(level, scope.one_of(2, 4, 8), 3, activation="relu")
        left = net.conv(tower, boxes)
        right = net.conv(level, scores, like=left if scope.coin() else None)
        net.output(net.concat([left, right]))


def unet(net: Net, scope: Scope) -> None:
    """Skips over ever shorter distances: instead of upsampling, dilation widens what the inner layers see."""
    side = scope.side()
    x = net.conv(net.input(scope.one_of(1, 3), side, side), scope.width(), 3, activation="relu")
    skips = []
    for level in range(scope.depth(2, 3)):
        skips.append(x)
        x = net.conv(x, scope.width(), 3, dilation=min(2**level, max(1, (side - 1) // 2)), activation="relu")
    while skips:
        x = net.conv(net.concat([skips.pop(), x]), scope.one_of(2, 4, 8), 3, activation="relu")
    net.output(net.conv(x, scope.one_of(1, 2, 3)))


def multi_scale(net: Net, scope: Scope) -> None:
    """Maps of three resolutions, brought to the smallest by pooling and strides, summed or put side by side."""
    side = scope.one_of(8, 16, 24)
    x = net.conv(net.input(3, side, side), 4, 3, activation="relu")
    middle = net.conv(x, 4, 3, stride=2, activation="relu")
    small = net.conv(middle, 4, 3, stride=2, activation="relu")
    parts = [net.maximum(x, 4, stride=4), net.maximum(middle, 2, stride=2), small]
    y = net.concat(parts) if scope.coin() else net.add(net.add(parts[0], parts[1]), parts[2])
    net.output(net.conv(y, scope.width(), 3, activation="HardSwish"))
