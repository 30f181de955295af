"""Networks from PyTorch through both of its exporters and `quantize` to the simulated core: ONNX Runtime's bytes.

They move bytes, make maps larger, multiply activations, or mix pixels by what they hold.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
import pytest

from cocotb_tests.support.oracles.exactness import assert_right, needs_reference
from lutterfly.golden.presets import PRESETS
from lutterfly.host.frontend import describe, import_model
from lutterfly.host.session.verify import verify

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-train")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from cocotb_tests.support.networks.torch_attention import Attentive, Classified, Mixer, Normalised, Transformer  # noqa: E402
from cocotb_tests.support.networks.torch_networks import (  # noqa: E402
    Attention,
    Autoencoder,
    Causal,
    ConvNext,
    DetectorHead,
    Gated,
    MobileNetV3,
    Moved,
    ShuffleNet,
    SuperResolution,
    UNet,
    quantised,
    windows,
)

pytestmark = [
    needs_reference,
    # PyTorch's exporter warns of what it uses itself.
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]

#: Kinds of layers that move elements, multiply two activations, and mix pixels.
MOVES = (
    *("arrangement", "border", "concatenation", "crop", "depth to space"),
    *("nearest upsampling", "shuffle", "slice"),
)
PRODUCTS = ("product", "product by vector")
MIXES = ("matrix product",)
IMAGE = (3, 16, 16)


@dataclass(frozen=True)
class Exported:
    """A network, and what becomes of it.

    Attributes
    ----------
    shape : tuple of int
        Of its input.
    layers : dict of str to int
        How many of the layers are of each of the kinds that are ``counted``.
    by_dynamo : dict of str to int or None
        The same where the newer exporter writes it otherwise.
    on_host : set of str
        Operators that the host computes, beside those that quantise.
    has_phases : bool
        Whether layers give a phase of a map each, so that nothing has to be moved.
    least : float
        Of the factors of batch normalisation.
    """

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    layers: dict[str, int]
    by_dynamo: dict[str, int] | None = None
    counted: tuple[str, ...] = MOVES
    on_host: frozenset[str] = frozenset()
    has_phases: bool = False
    least: float = 0.5

    def quantised(self, *, dynamo: bool) -> bytes:
        return quantised(self.make, self.shape, dynamo=dynamo, least=self.least)


multiplying = functools.partial(Exported, shape=(3, 16, 12), counted=PRODUCTS, least=0.3)
mixing = functools.partial(Exported, shape=IMAGE, counted=MIXES, least=0.3)


def small_shuffle() -> nn.Module:
    return ShuffleNet(stem=8, stages=((16, 3), (32, 2)), last=32, classes=5)


NETWORKS = {
    "shuffle": Exported(small_shuffle, (3, 32, 32), {"concatenation": 5, "shuffle": 8}),
    "causal": Exported(Causal, (3, 16), {"arrangement": 1}),
    "unshuffled": Exported(lambda: Moved(nn.PixelUnshuffle(2), 32), (1, 12, 8), {"arrangement": 1}),
    "windows": Exported(lambda: Moved(lambda maps: windows(maps, 4), 32), (1, 8, 8), {"arrangement": 1}),
    "turned": Exported(lambda: Moved(lambda maps: maps.transpose(2, 3)), (1, 8, 6), {"arrangement": 1}),
    "flipped": Exported(lambda: Moved(lambda maps: maps.flip(3)), (1, 8, 6), {"arrangement": 1}),
    "viewed": Exported(lambda: Moved(lambda maps: maps.reshape(-1, 4, 16, 6), 4), (1, 8, 6), {"arrangement": 1}),
    "chosen": Exported(
        lambda: Moved(lambda maps: maps[:, :, [3, 1, 0, 6]]), (1, 8, 6), {"arrangement": 1}, {"arrangement": 2}
    ),
    "reflected": Exported(lambda: Moved(nn.ReflectionPad2d((2, 1, 1, 2))), (1, 8, 8), {"border": 1}),
    "repeated": Exported(lambda: Moved(nn.ReplicationPad2d((1, 2, 0, 1))), (1, 8, 8), {"border": 1}),
    "surrounded": Exported(lambda: Moved(nn.ConstantPad2d(1, 0.7)), (1, 8, 8), {"border": 1}),
    "joined": Exported(
        lambda: Moved(lambda maps: torch.cat([maps, functional.max_pool2d(maps, 3, 1, 1)], 2)),
        (1, 8, 6),
        {"concatenation": 1},
    ),
    "halves": Exported(
        lambda: Moved(lambda maps: torch.add(*maps.chunk(2, 3))), (1, 8, 6), {"crop": 2}, {"arrangement": 2}
    ),
    # The legacy exporter writes Slice, in front of which SiLU stays in float.
    "halves behind SiLU": Exported(
        lambda: Moved(lambda maps: torch.cat([functional.relu(half) for half in functional.silu(maps).chunk(2, 1)], 1)),
        (1, 8, 6),
        {"slice": 2, "concatenation": 1},
    ),
    "kernel 2": Exported(
        lambda: UNet(nn.ConvTranspose2d(16, 8, 2, 2), 8),
        (1, 12, 10),
        {"depth to space": 1, "concatenation": 1},
        has_phases=True,
    ),
    "kernel 4": Exported(
        lambda: UNet(nn.ConvTranspose2d(16, 8, 4, 2, 1), 8),
        (1, 12, 10),
        {"depth to space": 1, "concatenation": 1},
        has_phases=True,
    ),
    "output padding": Exported(
        lambda: UNet(nn.ConvTranspose2d(16, 8, 3, 2, 1, 1), 8),
        (1, 12, 10),
        {"depth to space": 1, "concatenation": 1},
        has_phases=True,
    ),
    "odd": Exported(
        lambda: UNet(nn.ConvTranspose2d(16, 4, 3, 2), 4),
        (1, 13, 11),
        {"depth to space": 1, "crop": 1, "concatenation": 1},
    ),
    "nearest": Exported(
        lambda: UNet(nn.Upsample(scale_factor=2), 16), (1, 12, 10), {"nearest upsampling": 1, "concatenation": 1}
    ),
    "shuffled": Exported(lambda: UNet(nn.PixelShuffle(2), 4), (1, 12, 10), {"depth to space": 1, "concatenation": 1}),
    "detector": Exported(DetectorHead, (3, 16, 16), {"nearest upsampling": 1, "concatenation": 1}),
    "super-resolution": Exported(SuperResolution, (1, 8, 10), {"depth to space": 1}, has_phases=True),
    "autoencoder": Exported(Autoencoder, (1, 12, 12), {"depth to space": 2}, has_phases=True),
    "MobileNetV3": multiplying(lambda: MobileNetV3(nn.Hardswish(), nn.Hardsigmoid()), layers={"product by vector": 1}),
    "EfficientNet": multiplying(lambda: MobileNetV3(nn.SiLU(), nn.Sigmoid()), layers={"product by vector": 1}),
    "RegNetY": multiplying(lambda: MobileNetV3(nn.ReLU(), nn.Sigmoid()), layers={"product by vector": 1}),
    "gated": multiplying(Gated, layers={"product": 1}),
    "attention": multiplying(Attention, layers={"product by vector": 1}, on_host=frozenset({"Mul"})),
    "ConvNeXt": multiplying(ConvNext, layers={"product": 2}),
    "transformer": mixing(Transformer, layers={"matrix product": 6}),
    "transformer with a class token": mixing(Classified, layers={"matrix product": 6}),
    "PyTorch's attention": mixing(
        lambda: Attentive(nn.MultiheadAttention(24, 2, batch_first=True)), layers={"matrix product": 4}
    ),
    "PyTorch's encoder": mixing(
        lambda: Attentive(nn.TransformerEncoderLayer(24, 2, 48, batch_first=True, activation="gelu")),
        layers={"matrix product": 4},
    ),
    "mixer": mixing(Mixer, layers={}),
    "group normalisation": mixing(lambda: Normalised(lambda channels: nn.GroupNorm(4, channels)), layers={}),
    "instance normalisation": mixing(
        lambda: Normalised(lambda channels: nn.InstanceNorm2d(channels, affine=True)), layers={}
    ),
}


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_byte_is_onnx_runtimes(name: str, dynamo: bool) -> None:
    network = NETWORKS[name]
    data = network.quantised(dynamo=dynamo)
    rows = describe(import_model(data))
    on_host = {row.kind for row in rows if row.where != "accelerator"}
    assert on_host - {"QuantizeLinear", "DequantizeLinear"} == network.on_host
    kinds = Counter(re.sub(r" by \d.*| \+ .*", "", row.kind) for row in rows if row.where == "accelerator")
    wanted = network.by_dynamo if dynamo and network.by_dynamo is not None else network.layers
    assert {kind: kinds[kind] for kind in network.counted if kinds[kind]} == wanted
    found = verify(data, PRESETS["ecp5-85k"], samples=2)
    assert_right(found)
    (core,) = found.loaded.program.cores
    assert any(" phase " in layer.name for layer in core.layers) == network.has_phases


@pytest.mark.parametrize(
    "name",
    [
        *("shuffle", "reflected", "windows", "kernel 4", "nearest", "autoencoder", "MobileNetV3", "gated", "attention"),
        *("transformer with a class token", "mixer", "group normalisation"),
    ],
)
def test_networks_larger_than_the_memories(name: str) -> None:
    assert_right(verify(NETWORKS[name].quantised(dynamo=False), PRESETS["tiny"], samples=1))


def test_both_operands_are_quantised_around_zero() -> None:
    """And nothing else that need not be."""
    model = onnx.load_from_string(quantised(Transformer, IMAGE, dynamo=False))
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
