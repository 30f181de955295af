"""Networks that are drawn: binary convolutions among other kinds of layer."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from cocotb_tests.support.networks.binaries import BinaryNetwork, random_layer, random_window

#: Of activations of other layers.
_ZERO_POINT = 3


@dataclass(frozen=True)
class _Map:
    """A feature map: its tensor, its shape and its zero point; whether a QuantizeLinear has made it, which ONNX Runtime
    may write as uint8."""

    name: str
    channels: int
    height: int
    width: int
    zero_point: int = _ZERO_POINT
    is_quantised: bool = False


class _Drawn:
    def __init__(self, seed: int, most_channels: int, side: int):
        self.rng, self.most = np.random.default_rng(seed), most_channels
        channels, (height, width) = self.channels(), self.rng.integers(1, side + 1, 2).tolist()
        self.network = BinaryNetwork((channels, height, width), seed=seed)
        self.maps = [_Map("x", channels, height, width)]

    def channels(self) -> int:
        """Often at the ends of bytes and words."""
        return min(int(self.rng.choice([1, 7, 8, 9, 16, 31, 33, *self.rng.integers(1, self.most + 1, 3)])), self.most)

    def grow(self) -> None:
        """Add a layer that reads the last map, and perhaps another one."""
        others = (self.convolution, self.depthwise, self.table, self.pool, self.residual, self.concat)
        # Every second layer is one that this is about.
        kind = self.binary if self.rng.integers(2) else others[self.rng.integers(len(others))]
        self.maps.append(kind(self.maps[-1]))

    def binary(self, last: _Map) -> _Map:
        kernel, given, size = random_window(self.rng, (last.height, last.width))
        return self._binary(last, kernel, size, given)

    def _binary(self, last: _Map, kernel: tuple[int, ...], size: tuple[int, int], given: dict) -> _Map:
        rng, outputs = self.rng, self.channels()
        known = random_layer(rng, (outputs, last.channels, *kernel), codes=rng.integers(3) == 0) | given
        known["input_zero_point"] = int(rng.choice([last.zero_point, last.zero_point, rng.integers(-128, 128)]))
        zero_point = _ZERO_POINT if "scale" in known else 0
        if "scale" in known:
            known |= {"zero_point": _ZERO_POINT, "low": int(rng.choice([-128, _ZERO_POINT])), "high": 120}
        name = self.network.binary(last.name, last.channels, outputs, kernel, **known)
        return _Map(name, outputs, *size, zero_point)

    def convolution(self, last: _Map) -> _Map:
        outputs, kernel = self.channels(), int(self.rng.choice([1, 3]))
        name = self.network.convolution(last.name, last.channels, outputs, kernel, zero_point=last.zero_point)
        return _Map(name, outputs, last.height, last.width)

    def depthwise(self, last: _Map) -> _Map:
        given = {"groups": last.channels, "zero_point": last.zero_point}
        name = self.network.convolution(last.name, last.channels, last.channels, 3, **given)
        return _Map(name, *_shape(last))

    def table(self, last: _Map) -> _Map:
        name = self.network.table(last.name, str(self.rng.choice(["Sigmoid", "HardSwish", "Tanh"])))
        return _Map(name, *_shape(last), is_quantised=True)

    def pool(self, last: _Map) -> _Map:
        kernel = [min(2, last.height), min(2, last.width)]
        name = self.network.add("MaxPool", last.name, kernel_shape=kernel, strides=kernel)
        return dataclasses.replace(last, name=name, height=last.height // kernel[0], width=last.width // kernel[1])

    def residual(self, last: _Map) -> _Map:
        """The sum with a map of the same shape, which may be +1 and -1."""
        alike = [one for one in self.maps[:-1] if _alike(one, last)]
        if not alike:
            return self.binary(last)
        other, network = alike[self.rng.integers(len(alike))], self.network
        parts = (network.dequantise(one.name, zero_point=one.zero_point) for one in (last, other))
        return _Map(network.quantise(network.add("Add", *parts)), *_shape(last), is_quantised=True)

    def concat(self, last: _Map) -> _Map:
        beside = [
            one for one in self.maps[:-1] if dataclasses.replace(one, name=last.name, channels=last.channels) == last
        ]
        if not beside:
            return self.binary(last)
        other = beside[self.rng.integers(len(beside))]
        name = self.network.add("Concat", last.name, other.name, axis=1)
        return dataclasses.replace(last, name=name, channels=last.channels + other.channels)

    def vector(self, last: _Map) -> _Map:
        """Fully connected layers on a whole map."""
        features = last.channels * last.height * last.width
        flat = _Map(self.network.add("Flatten", last.name), features, 1, 1, last.zero_point)
        hidden = self._binary(flat, (), (1, 1), {})
        return self._binary(hidden, (), (1, 1), {})


def _alike(one: _Map, other: _Map) -> bool:
    """Whether two maps may be added: ONNX Runtime adds int8 to int8 alone."""
    return one.name != other.name and _shape(one) == _shape(other) and not (one.is_quantised or other.is_quantised)


def _shape(one: _Map) -> tuple[int, int, int]:
    return one.channels, one.height, one.width


def binary_network(seed: int, *, most_channels: int = 40, side: int = 8) -> tuple[bytes, dict[str, np.ndarray]]:
    """An ONNX file with the int8 input ``x`` and one or two int8 outputs, and a feed for it."""
    drawn = _Drawn(seed, most_channels, side)
    first = drawn.maps[0]
    drawn.maps.append(drawn.binary(first) if drawn.rng.integers(2) else drawn.convolution(first))
    for _ in range(int(drawn.rng.integers(2, 7))):
        drawn.grow()
    last = drawn.maps[-1]
    outputs = [drawn.vector(last).name if drawn.rng.integers(3) == 0 else last.name]
    if drawn.rng.integers(4) == 0:
        # A map in between, whoever else reads it.
        outputs.append(drawn.maps[drawn.rng.integers(1, len(drawn.maps))].name)
    feed = drawn.rng.integers(-128, 128, (1, first.channels, first.height, first.width)).astype(np.int8)
    return drawn.network.data(*dict.fromkeys(outputs)), {"x": feed}
