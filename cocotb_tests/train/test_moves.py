"""Networks that move bytes, from PyTorch through `quantize` to the simulated core: ONNX Runtime's bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cocotb_tests.support.oracles.exactness import assert_right, needs_reference
from lutterfly.golden.presets import PRESETS
from lutterfly.host.frontend import describe, import_model
from lutterfly.host.session.verify import verify

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-train")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from cocotb_tests.support.networks.torch_networks import (  # noqa: E402
    Causal,
    Moved,
    ShuffleNet,
    quantised,
    windows,
)

pytestmark = [
    needs_reference,
    # PyTorch's exporter warns of what it uses itself.
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]


def small_shuffle() -> nn.Module:
    return ShuffleNet(stem=8, stages=((16, 3), (32, 2)), last=32, classes=5)


#: Each network, the shape of its input, and the layers that move elements, in order.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], list[str]]] = {
    "shuffle": (small_shuffle, (3, 32, 32), ["shuffle"] * 8),
    "causal": (Causal, (3, 16), ["arrangement"]),
    "unshuffled": (lambda: Moved(nn.PixelUnshuffle(2), 32), (1, 12, 8), ["arrangement"]),
    "windows": (lambda: Moved(lambda maps: windows(maps, 4), 32), (1, 8, 8), ["arrangement"]),
    "turned": (lambda: Moved(lambda maps: maps.transpose(2, 3)), (1, 8, 6), ["arrangement"]),
    "flipped": (lambda: Moved(lambda maps: maps.flip(3)), (1, 8, 6), ["arrangement"]),
    "viewed": (lambda: Moved(lambda maps: maps.reshape(-1, 4, 16, 6), 4), (1, 8, 6), ["arrangement"]),
    "chosen": (lambda: Moved(lambda maps: maps[:, :, [3, 1, 0, 6]]), (1, 8, 6), ["arrangement"]),
    "reflected": (lambda: Moved(nn.ReflectionPad2d((2, 1, 1, 2))), (1, 8, 8), ["border"]),
    "repeated": (lambda: Moved(nn.ReplicationPad2d((1, 2, 0, 1))), (1, 8, 8), ["border"]),
    "surrounded": (lambda: Moved(nn.ConstantPad2d(1, 0.7)), (1, 8, 8), ["border"]),
    "joined": (
        lambda: Moved(lambda maps: torch.cat([maps, functional.max_pool2d(maps, 3, 1, 1)], 2)),
        (1, 8, 6),
        ["concatenation"],
    ),
    "halves": (lambda: Moved(lambda maps: torch.add(*maps.chunk(2, 3))), (1, 8, 6), []),
    # The legacy exporter writes Slice, in front of which SiLU stays in float.
    "halves behind SiLU": (
        lambda: Moved(lambda maps: torch.cat([functional.relu(half) for half in functional.silu(maps).chunk(2, 1)], 1)),
        (1, 8, 6),
        [],
    ),
}
MOVES = ("arrangement", "border", "concatenation", "shuffle")


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_byte_is_onnx_runtimes(name: str, dynamo: bool) -> None:
    data = quantised(*NETWORKS[name][:2], dynamo=dynamo)
    rows = describe(import_model(data))
    assert {row.where for row in rows if row.kind not in ("QuantizeLinear", "DequantizeLinear", "Reshape")} == {
        "accelerator"
    }
    found = verify(data, PRESETS["ecp5-85k"], samples=2)
    assert_right(found)
    assert found.bytes


@pytest.mark.parametrize("name", ["shuffle", "reflected", "windows"])
def test_networks_larger_than_the_memories(name: str) -> None:
    assert_right(verify(quantised(*NETWORKS[name][:2], dynamo=False), PRESETS["tiny"], samples=1))
