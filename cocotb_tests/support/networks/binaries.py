"""Binary convolutions with random weights, and ONNX models that have some, for tests."""

from __future__ import annotations

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
