"""Binary convolutions with random weights, and ONNX models that have some, for tests and benchmarks.

    PYTHONPATH=. .venv/bin/python -m cocotb_tests.support.networks.binaries FOLDER

writes :func:`cnv` and :func:`four_layers` to a folder.
"""

from __future__ import annotations

import sys
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


if __name__ == "__main__":
    for name, data in (("cnv", cnv()), ("binary_3x3", four_layers())):
        (Path(sys.argv[1]) / f"{name}.onnx").write_bytes(data)
