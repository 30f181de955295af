"""Shapes of real families: classifiers, MobileNets, detectors, networks without images, attention and gates."""

from __future__ import annotations

from cocotb_tests.support.networks.families.builder import Codes, Net, Scope


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


# MobileNets: depthwise and pointwise convolutions in turn.


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


# Detectors and segmentation: heads side by side, pyramids of pooling, maps that are read again much later.


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


# Networks without images: fully connected ones, autoencoders, 1-D convolutions.


def perceptron(net: Net, scope: Scope) -> None:
    """Fully connected layers; it may be executed in batches."""
    x = net.input(scope.one_of(7, 16, 33, 64, 100))
    for _ in range(scope.depth(1, 4)):
        x = net.dense(
            x,
            scope.one_of(5, 8, 16, 31, 48),
            activation=scope.one_of("relu", "relu", "Tanh", ""),
            matmul=scope.coin(0.3),
        )
    net.output(net.dense(x, scope.depth(1, 12)))


def autoencoder(net: Net, scope: Scope) -> None:
    """Ever narrower layers, then ever wider ones; dense or convolutions with strides."""
    if scope.coin(0.6):
        size = scope.one_of(40, 64, 96)
        x = net.input(size)
        for width in (size // 2, size // 2, 8, size // 2, size):
            x = net.dense(x, width, activation="relu" if width < size else "")
    else:
        side = scope.one_of(8, 12, 16)
        x = net.input(2, side, side)
        for channels in (4, 6, 8):
            x = net.conv(x, channels, 3, stride=2, activation="relu")
        x = net.dense(net.dense(net.flatten(x), 6, activation="relu"), 32)
    net.output(x)


def waveform(net: Net, scope: Scope) -> None:
    """1-D convolutions with ever larger dilation and residuals, as for sound and text."""
    length = scope.one_of(16, 31, 50, 64, 100)
    x = net.conv(net.input(scope.one_of(1, 2, 5), length), scope.width(), 3, activation="relu")
    for level in range(scope.depth(1, 4)):
        y = net.conv(x, x.channels, 3, dilation=2**level, activation="relu")
        if scope.coin(0.3):
            y = net.conv(y, y.channels, scope.one_of(3, 5, 9), groups=y.channels, activation="relu")
        x = net.add(x, net.conv(y, x.channels))
        if scope.coin(0.3):
            x = net.maximum(x, 2, stride=2)
    if scope.coin():
        x = net.dense(net.flatten(net.global_average(x)), scope.depth(2, 12))
    net.output(x)


def spectrogram(net: Net, scope: Scope) -> None:
    """Keyword spotting: a wide first kernel, depthwise separable layers, a map that is far from square."""
    x = net.input(1, scope.one_of(20, 25, 49), scope.one_of(5, 10))
    x = net.conv(x, scope.width(), (scope.one_of(4, 5, 10), scope.one_of(3, 4)), stride=2, activation="relu")
    for _ in range(scope.depth(1, 3)):
        x = net.conv(x, x.channels, 3, groups=x.channels, activation="relu")
        x = net.conv(x, scope.width(), activation="relu")
    net.output(net.dense(net.flatten(net.global_average(x)), 12))


# Two activations that become one, and elements that move: attention, gates, upsampling, shuffles, crops.


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
