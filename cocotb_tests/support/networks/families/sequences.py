"""Networks without images: fully connected ones, autoencoders, 1-D convolutions."""

from __future__ import annotations

from .builder import Net
from .scope import Scope


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
