"""Quantised graphs with binary layers for tests."""

from __future__ import annotations

import dataclasses

import numpy as np

from cocotb_tests.support.quantised.graphs import GraphMaker
from cocotb_tests.support.quantised.random_graphs import random_window
from lutterfly.host.graph import BinaryConvolution, CodeFinish, Graph, Pointwise, Window


class BinaryGraphMaker(GraphMaker):
    """As :class:`GraphMaker`, with layers that read and write binary tensors."""

    def to_bits(self, name: str) -> str:
        """Make a tensor binary: the layer that writes it gives signs."""
        tensor = self.graph.tensors[name]
        self.graph.tensors[name] = dataclasses.replace(tensor, bits=1, zero_point=0)
        return name

    def signs(self, source: str, *, table: bool = False) -> str:
        name = self._name()
        finish = CodeFinish(table=self.table() if table else None)
        self.graph.layers.append(Pointwise(f"signs_{name}", (source,), name, finish=finish))
        self._tensor(name, self.graph.tensors[source].shape, 0)
        return self.to_bits(name)

    def binary_convolution(
        self, source: str, channels: int, window: Window, *, pad: int = 1, bits: int = 1, table: bool = False
    ) -> str:
        height, width, depth = self.graph.tensors[source].shape
        shape = (*window.output_size(height, width), channels)
        weights = self.rng.choice([-1, 1], (channels, *window.kernel, depth)).astype(np.int8)
        count = np.sqrt(weights[0].size)
        bias = self.rng.integers(-int(count) - 1, int(count) + 2, channels, dtype=np.int32)
        name, zero_point = self._name(), 0
        multiplier = np.ones(channels, np.float32)
        if bits == 8:
            multiplier = (self.rng.uniform(20, 60, channels) / count).astype(np.float32)
            zero_point = int(self.rng.integers(-128, 128))
        else:
            # Some that are the same for all inputs.
            bias[self.rng.random(channels) < 0.05] = self.rng.choice([-(1 << 30), 1 << 30])
        finish = CodeFinish()
        if table:
            finish = finish.after(self._tensor(f"{name}_requantised", shape, zero_point), self.table())
        self.graph.layers.append(
            BinaryConvolution(
                f"binary_{name}",
                (source,),
                name,
                weights,
                bias,
                multiplier,
                window=window,
                finish=finish,
                pad=pad,
            )
        )
        self._tensor(name, shape, zero_point)
        return name if bits == 8 else self.to_bits(name)

    def binary_fully_connected(self, source: str, channels: int, **options) -> str:
        return self.binary_convolution(source, channels, Window(self.graph.tensors[source].shape[:2]), **options)


def random_binary_graph(seed: int, *, most_channels: int = 40, side: int = 9) -> Graph:
    """Some int8 layers and binary ones, with geometry at random."""
    rng = np.random.default_rng(seed)

    def channels() -> int:
        return int(rng.choice([1, 3, 7, 8, 9, 16, 24, 31, 33, most_channels, rng.integers(1, most_channels + 1)]))

    shape = (int(rng.integers(1, side + 1)), int(rng.integers(1, side + 1)), int(rng.choice([1, 2, 3, 5, 8, 17])))
    maker = BinaryGraphMaker(shape, seed=seed, zero_point=int(rng.integers(-128, 128)))
    name, outputs = "x", []
    for _ in range(int(rng.integers(2, 6))):
        tensor = maker.graph.tensors[name]
        window = random_window(rng, tensor.shape)
        table = rng.random() < 0.2
        if tensor.bits == 8:
            kind = rng.choice(["signs", "signs", "convolution", "convolution", "residual"])
            if kind == "signs":
                name = maker.signs(name, table=table)
            elif kind == "convolution":
                name = maker.to_bits(maker.convolution(name, channels(), window, table=table))
            else:
                bits = maker.signs(name)
                same = Window((3, 3), pads=(1, 1, 1, 1))
                beside = maker.binary_convolution(bits, tensor.shape[2], same, bits=8, pad=int(rng.choice([1, -1, 0])))
                name = maker.add(name, beside)
        else:
            kind = rng.choice(["convolution", "convolution", "codes", "pool", "fully connected", "concat", "slice"])
            pad = int(rng.choice([1, 1, -1, 0]))
            if kind == "pool":
                name = maker.to_bits(maker.max_pool(name, window))
            elif kind == "concat" and tensor.shape[2] % 8 == 0:
                beside = maker.binary_convolution(name, channels(), Window((1, 1)))
                name = maker.to_bits(maker.concat(name, beside, tables=False))
            elif kind == "slice" and tensor.shape[2] > 8:
                first = 8 * int(rng.integers(0, (tensor.shape[2] - 1) // 8 + 1))
                end = int(rng.choice([*range(first + 8, tensor.shape[2], 8), tensor.shape[2]]))
                name = maker.to_bits(maker.slice(name, first, end - first))
            elif kind == "fully connected":
                name = maker.binary_fully_connected(name, channels(), bits=int(rng.choice([1, 8])), table=table)
            else:
                bits = 8 if kind == "codes" else 1
                name = maker.binary_convolution(name, channels(), window, pad=pad, bits=bits, table=table)
        if rng.integers(4) == 0:
            outputs.append(name)
    return maker.finish(*dict.fromkeys([*outputs, name]))
