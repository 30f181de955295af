"""Transposed convolutions between quantised tensors: ONNX Runtime's bytes where they are certain, else refused."""

from __future__ import annotations

import numpy as np
import pytest

from cocotb_tests.support.networks.transposed_graphs import transposed
from cocotb_tests.support.oracles.exactness import assert_exact, assert_right, needs_reference
from lutterfly.golden.presets import PRESETS
from lutterfly.host.frontend import ModelError, describe, import_model
from lutterfly.host.session.verify import verify

pytestmark = needs_reference

STRIDED = {"strides": (2, 2)}


def feeds(*shape: int) -> dict[str, np.ndarray]:
    return {"image": np.random.default_rng(1).normal(size=(1, *shape)).astype(np.float32)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("kernel", "given", "moves"),
    [
        ((3, 3), {}, []),
        ((2, 2), STRIDED, ["depth to space"]),
        ((4, 4), STRIDED | {"pads": (1, 1, 1, 1), "relu": True}, ["depth to space"]),
        ((3, 3), STRIDED | {"pads": (1, 1, 1, 1), "output_padding": (1, 1)}, ["depth to space"]),
        ((3, 3), STRIDED | {"pads": (1, 1, 1, 1)}, ["depth to space", "crop"]),
        ((3, 3), STRIDED | {"group": 2, "dilations": (2, 2)}, ["depth to space", "crop"]),
        ((3, 3), STRIDED | {"group": 4, "channels": (4, 4), "pads": (1, 1, 0, 0)}, ["depth to space"]),
        ((3, 5), {"strides": (2, 3), "pads": (1, 1, 1, 1), "output_padding": (0, 1)}, ["depth to space", "crop"]),
        # Pixels that no element reaches hold the bias alone.
        ((1, 1), {"strides": (3, 3)}, ["depth to space", "crop"]),
        # More is cut off than the kernel adds.
        ((2, 2), STRIDED | {"pads": (3, 0, 3, 1)}, ["depth to space", "crop"]),
        ((4, 4), STRIDED | {"auto_pad": "SAME_UPPER"}, ["depth to space"]),
        ((3, 3), STRIDED | {"auto_pad": "SAME_LOWER"}, ["depth to space"]),
        ((3, 3), STRIDED | {"output_shape": (10, 12)}, ["depth to space"]),
    ],
)
def test_powers_of_two_are_exact(kernel: tuple[int, int], given: dict, moves: list[str]) -> None:
    data = transposed(kernel, **given)
    graph = assert_exact(data, feeds(4, 5, 6), covered=False)
    kinds = [graph.kind_of(layer) for layer in graph.layers]
    assert kinds[2:-1] == moves
    assert_right(verify(data, PRESETS["tiny"], samples=1))


def test_one_dimension() -> None:
    data = transposed((4,), shape=(9,), strides=(2,), pads=(1, 1))
    graph = assert_exact(data, feeds(4, 9), covered=False)
    assert graph.kind_of(graph.layers[2]) == "depth to space"


def test_where_float32_may_round_either_way_it_is_refused_between_layers() -> None:
    data = transposed(**STRIDED, scales=(0.053, 0.013, 0.4))
    with pytest.raises(ModelError) as refused:
        import_model(data)
    assert str(refused.value) == (
        "model: ConvTranspose 'transposed' between Conv 'first' and Conv 'last' is not supported: ONNX Runtime "
        "computes it in float, and float32 may round the sum -75762 of channel 0 to the code -128 or to -127; quantise "
        "the float model with `lutterfly quantize`, which spells it as a convolution and DepthToSpace, or use scales "
        "that are powers of two"
    )


def test_at_an_end_it_runs_on_the_host_unless_it_is_certain() -> None:
    rows = describe(import_model(transposed((2, 2), alone=True, **STRIDED)))
    assert [row.where for row in rows] == ["host", "accelerator", "accelerator", "host"]
    with pytest.raises(ModelError) as refused:
        import_model(transposed((2, 2), alone=True, scales=(0.053, 0.013, 0.4), **STRIDED))
    assert "ConvTranspose 'transposed': ONNX Runtime computes it in float, and float32 may round" in str(refused.value)
