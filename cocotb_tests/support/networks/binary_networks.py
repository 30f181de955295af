"""Binary convolutions with random weights, and ONNX models that have some: drawn ones, and two for benchmarks.

    .venv/bin/python -m cocotb_tests.support.networks.binary_networks FOLDER

writes :func:`cnv` and :func:`four_layers` to a folder.
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cocotb_tests.support.networks.butterflies import Network
from lutterfly.host.model.functions.binary_function import NAME, make_function
from lutterfly.host.model.functions.onnx_function import DOMAIN


class BinaryNetwork(Network):
    """An ONNX model under construction that may have binary layers."""

    def binary(
        self,
        source: str,
        inputs: int,
        outputs: int,
        kernel: tuple[int, ...] = (3, 3),
        *,
        codes: bool = False,
        **known: object,
    ) -> str:
        """With random weights and biases; its result is codes or signs, see :func:`random_layer`."""
        given = random_layer(self.rng, (outputs, inputs, *kernel), codes=codes) | known
        name = f"{NAME}_{len(self.functions)}"
        self.functions.append(make_function(**given, name=name, opset=self.opset))
        return self.add(name, source, domain=DOMAIN)


def random_layer(rng: np.random.Generator, shape: tuple[int, ...], *, codes: bool) -> dict[str, np.ndarray]:
    """What :func:`make_function` wants, by name: signs of both kinds, or codes that use the whole range."""
    size = int(np.prod(shape[1:]))
    layer = {"weights": rng.choice([-1, 1], shape).astype(np.int8)}
    layer["bias"] = rng.integers(-np.sqrt(size), np.sqrt(size) + 1, shape[0]).astype(np.int32)
    if codes:
        layer["scale"] = (rng.uniform(20, 60, shape[0]) / np.sqrt(size)).astype(np.float32)
    return layer


def random_window(
    rng: np.random.Generator, size: tuple[int, int]
) -> tuple[tuple[int, int], dict[str, object], tuple[int, int]]:
    """Kernel, what else :func:`make_function` wants of the window, and rows and columns of the result."""
    kernel, dilations, pads = rng.integers(1, 6, 2), rng.integers(1, 3, 2), rng.integers(0, 3, 4)
    if rng.integers(3) == 0:
        kernel, pads = np.array([3, 3]), dilations.repeat(2).reshape(2, 2).T.reshape(-1)
    padded = np.array(size) + pads[:2] + pads[2:]
    kernel = np.minimum(kernel, (padded - 1) // dilations + 1)
    strides = rng.integers(1, 4, 2) if rng.integers(3) == 0 else np.array([1, 1])
    rows, columns = (padded - (kernel - 1) * dilations - 1) // strides + 1
    given = {"strides": strides.tolist(), "dilations": dilations.tolist(), "pads": pads.tolist()}
    given = {name: tuple(values) for name, values in given.items()} | {"pad_value": int(rng.integers(-1, 2))}
    return tuple(kernel.tolist()), given, (int(rows), int(columns))


def cnv() -> bytes:
    """FINN's CNV for images of 32x32x3: six 3x3 convolutions and three matrices, binary but for the first one.

    Source: Y. Umuroglu et al., FINN: A Framework for Fast, Scalable Binarized Neural Network Inference.
    """
    network = BinaryNetwork((3, 32, 32))
    found = network.convolution("x", 3, 64, 3, padded=False)
    for inputs, outputs, is_pooled in ((64, 64, True), (64, 128, False), (128, 128, True), (128, 256, False)):
        # The first one's codes have another zero point than signs.
        found = network.binary(found, inputs, outputs, input_zero_point=3 if inputs == outputs == 64 else 0)
        if is_pooled:
            found = network.add("MaxPool", found, kernel_shape=[2, 2], strides=[2, 2])
    found = network.add("Flatten", network.binary(found, 256, 256))
    for inputs, outputs, codes in ((256, 512, False), (512, 512, False), (512, 10, True)):
        found = network.binary(found, inputs, outputs, (), codes=codes)
    return network.data(found)


def four_layers() -> bytes:
    """Four binary 3x3 layers of 64 channels on 56x56, with every kind of border."""
    network, found = BinaryNetwork((64, 56, 56)), "x"
    for number, value in enumerate((1, 0, -1, 1)):
        found = network.binary(found, 64, 64, pads=(1, 1, 1, 1), pad_value=value, codes=number == 3)
    return network.data(found)


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


if __name__ == "__main__":
    for name, data in (("cnv", cnv()), ("binary_3x3", four_layers())):
        (Path(sys.argv[1]) / f"{name}.onnx").write_bytes(data)
