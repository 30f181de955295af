"""Networks with attention, and with norms of what they normalise, from PyTorch to the simulated core."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from cocotb_tests.support.oracles.exactness import assert_right, needs_reference
from lutterfly.golden.presets import PRESETS
from lutterfly.host.frontend import describe, import_model
from lutterfly.host.graph import MatrixProduct
from lutterfly.host.session.verify import verify

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-train")
from torch import nn  # noqa: E402

from cocotb_tests.support.networks.torch_attention import Attentive, Classified, Mixer, Normalised, Transformer  # noqa: E402
from cocotb_tests.support.networks.torch_networks import quantised  # noqa: E402

pytestmark = [
    needs_reference,
    # PyTorch's exporter warns of what it uses itself.
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]

#: Of the images.
SHAPE = (3, 16, 16)
#: Each network, and how many products of two activations it has.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "transformer": (Transformer, 6),
    "transformer with a class token": (Classified, 6),
    "PyTorch's attention": (lambda: Attentive(nn.MultiheadAttention(24, 2, batch_first=True)), 4),
    "PyTorch's encoder": (
        lambda: Attentive(nn.TransformerEncoderLayer(24, 2, 48, batch_first=True, activation="gelu")),
        4,
    ),
    "mixer": (Mixer, 0),
    "group normalisation": (lambda: Normalised(lambda channels: nn.GroupNorm(4, channels)), 0),
    "instance normalisation": (lambda: Normalised(lambda channels: nn.InstanceNorm2d(channels, affine=True)), 0),
}


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_byte_is_onnx_runtimes(name: str, dynamo: bool) -> None:
    make, products = NETWORKS[name]
    data = quantised(make, SHAPE, least=0.3, dynamo=dynamo)
    graph = import_model(data)
    assert sum(isinstance(layer, MatrixProduct) for layer in graph.layers) == products
    assert all(row.kind in ("QuantizeLinear", "DequantizeLinear") for row in describe(graph) if row.where == "host")
    assert_right(verify(data, PRESETS["ecp5-85k"], samples=2))


@pytest.mark.parametrize("name", ["transformer with a class token", "mixer", "group normalisation"])
def test_on_small_memories(name: str) -> None:
    assert_right(verify(quantised(NETWORKS[name][0], SHAPE, least=0.3, dynamo=False), PRESETS["tiny"], samples=1))


def test_both_operands_are_quantised_around_zero() -> None:
    """And nothing else that need not be."""
    model = onnx.load_from_string(quantised(Transformer, SHAPE, dynamo=False))
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    makers = {name: node for node in model.graph.node for name in node.output}
    zeros = {
        name: int(constants[makers[name].input[2]])
        for node in model.graph.node
        for name in node.input
        if name in makers and makers[name].op_type == "DequantizeLinear" and makers[name].input[0] not in constants
    }
    operands = {
        name
        for node in model.graph.node
        if node.op_type == "MatMul" and all(makers[name].input[0] not in constants for name in node.input)
        for name in node.input
    }
    assert len(operands) == 4
    assert {zeros[name] for name in operands} == {0}
    assert np.count_nonzero([zero for name, zero in zeros.items() if name not in operands]) > 10
