"""Networks that are drawn: fast pointwise convolutions among every other kind of layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cocotb_tests.support.networks.butterflies import Network, random_finish, random_stages, rotating_stages
from lutterfly.golden.numerics.butterfly import Density, Direction, Pattern, count_stages

#: Of all activations.
_ZERO_POINT = 3


@dataclass(frozen=True)
class _Map:
    """A feature map: its tensor and its shape."""

    name: str
    channels: int
    height: int
    width: int


class _Drawn:
    def __init__(self, seed: int, most_channels: int, directions: Sequence[Direction], *, is_standard: bool):
        self.rng, self.most, self.directions = np.random.default_rng(seed), most_channels, directions
        self.is_standard = is_standard
        channels, height, width = self.rng.integers(1, most_channels + 1), *self.rng.integers(2, 7, 2)
        self.network = Network((int(channels), int(height), int(width)), seed=seed)
        self.maps = [_Map("x", int(channels), int(height), int(width))]

    def grow(self) -> None:
        """Add a layer that reads the last map, and perhaps another one."""
        last = self.maps[-1]
        kinds = {
            "fast": self.fast,
            "convolution": self.convolution,
            "depthwise": self.depthwise,
            "table": self.table,
            "pool": self.pool,
            "add": self.add,
            "concat": self.concat,
        }
        # Every second layer is one that this is about.
        kind = "fast" if self.rng.integers(2) else str(self.rng.choice(list(kinds)))
        self.maps.append(kinds[kind](last))

    def fast(self, last: _Map, spatial: int = 2) -> _Map:
        rng, seed = self.rng, int(self.rng.integers(1 << 20))
        outputs = int(rng.integers(2, self.most + 1))
        stages = count_stages(last.channels, outputs)
        densities = rng.choice(list(Density), stages).tolist() if rng.integers(3) == 0 else None
        skips = [(0, stages - 1)] if rng.integers(4) == 0 else []
        if self.is_standard:
            densities, skips = None, []
        pattern = Pattern.of(last.channels, outputs, str(rng.choice(self.directions)), densities, skips)
        finish = random_finish(outputs, seed, shift=int(rng.integers(2, 7)) if rng.integers(2) else None)
        if finish.shift is not None:
            # Such a layer needs no requantiser; it may use all codes, as a layer of a network does.
            finish = dataclasses.replace(finish, low=-128, high=127)
        name = self.network.fast_pointwise(
            last.name,
            pattern,
            zero_point=_ZERO_POINT,
            spatial=spatial,
            stages=(random_stages if rng.integers(3) == 0 else rotating_stages)(pattern, seed),
            finish=dataclasses.replace(finish, zero_point=_ZERO_POINT),
        )
        return _Map(name, outputs, last.height, last.width)

    def convolution(self, last: _Map) -> _Map:
        outputs = int(self.rng.integers(1, self.most + 1))
        kernel = int(self.rng.choice([1, 3]))
        return dataclasses.replace(
            last, name=self.network.convolution(last.name, last.channels, outputs, kernel), channels=outputs
        )

    def depthwise(self, last: _Map) -> _Map:
        name = self.network.convolution(last.name, last.channels, last.channels, 3, groups=last.channels)
        return dataclasses.replace(last, name=name)

    def table(self, last: _Map) -> _Map:
        operator = str(self.rng.choice(["Sigmoid", "HardSwish", "Tanh"]))
        return dataclasses.replace(last, name=self.network.table(last.name, operator))

    def pool(self, last: _Map) -> _Map:
        if min(last.height, last.width) < 2:
            return self.depthwise(last)
        name = self.network.add("MaxPool", last.name, kernel_shape=[2, 2], strides=[2, 2])
        return _Map(name, last.channels, last.height // 2, last.width // 2)

    def add(self, last: _Map) -> _Map:
        alike = [one for one in self.maps[:-1] if dataclasses.replace(one, name=last.name) == last]
        if not alike:
            return self.fast(last)
        other, network = alike[self.rng.integers(len(alike))], self.network
        total = network.add("Add", network.dequantise(last.name), network.dequantise(other.name))
        return dataclasses.replace(last, name=network.quantise(total))

    def concat(self, last: _Map) -> _Map:
        beside = [one for one in self.maps[:-1] if (one.height, one.width) == (last.height, last.width)]
        if not beside:
            return self.fast(last)
        other = beside[self.rng.integers(len(beside))]
        name = self.network.add("Concat", last.name, other.name, axis=1)
        return dataclasses.replace(last, name=name, channels=last.channels + other.channels)

    def vector(self, last: _Map) -> _Map:
        """The greatest of each channel, and a layer on them."""
        pooled = self.network.add("MaxPool", last.name, kernel_shape=[last.height, last.width])
        flat = _Map(self.network.add("Flatten", pooled), last.channels, 1, 1)
        return self.fast(flat, spatial=0)


def fast_network(
    seed: int,
    *,
    most_channels: int = 40,
    directions: Sequence[Direction] = tuple(Direction),
    is_standard: bool = False,
) -> tuple[bytes, dict[str, np.ndarray]]:
    """An ONNX file with the int8 input ``x`` and an int8 output, and a feed for it.

    ``is_standard``: with the densities of the direction, and without skips.
    """
    drawn = _Drawn(seed, most_channels, directions, is_standard=is_standard)
    first = drawn.maps[0]
    drawn.maps.append(drawn.fast(first) if first.channels > 1 else drawn.convolution(first))
    for _ in range(int(drawn.rng.integers(2, 7))):
        drawn.grow()
    last = drawn.maps[-1]
    if drawn.rng.integers(3) == 0:
        last = drawn.vector(last)
    shape = (1, first.channels, first.height, first.width)
    feed = drawn.rng.integers(-128, 128, shape).astype(np.int8)
    return drawn.network.data(last.name), {"x": feed}
