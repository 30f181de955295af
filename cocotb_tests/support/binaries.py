"""Binary convolutions with random weights, and ONNX models that have some, for tests."""

from __future__ import annotations

import numpy as np
from butterflies import Network

from lutterfly.host.binary_function import NAME, make_function
from lutterfly.host.onnx_function import DOMAIN


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
