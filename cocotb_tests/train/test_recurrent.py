"""LSTM and GRU from PyTorch through both exporters and `quantize` to the simulated core: the bytes of ONNX Runtime."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest

from cocotb_tests.support.oracles.exactness import assert_right, needs_reference
from lutterfly.golden.presets import PRESETS
from lutterfly.host.frontend import describe, import_model
from lutterfly.host.model.model import Model
from lutterfly.host.quantize import quantize
from lutterfly.host.quantize.static_quantisation import relative_errors
from lutterfly.host.session.verify import verify

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-train")
from torch import nn  # noqa: E402

from cocotb_tests.support.networks.torch_networks import (  # noqa: E402
    Keywords,
    Recurrent,
    settle,
)

pytestmark = [
    needs_reference,
    # PyTorch's exporter warns of what it uses itself.
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]

#: Steps and elements of each, and of a spectrogram.
SEQUENCE, SPECTROGRAM = (5, 6), (10, 8)
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, int]]] = {
    "LSTM": (lambda: Recurrent(nn.LSTM, "last"), SEQUENCE),
    "GRU": (lambda: Recurrent(nn.GRU, "last"), SEQUENCE),
    "LSTM, every step": (lambda: Recurrent(nn.LSTM, "every"), SEQUENCE),
    "GRU, state": (lambda: Recurrent(nn.GRU, "state"), SEQUENCE),
    "two LSTMs, state": (lambda: Recurrent(nn.LSTM, "state", layers=2), SEQUENCE),
    "two GRUs, every step": (lambda: Recurrent(nn.GRU, "every", layers=2), SEQUENCE),
    "LSTM of both directions": (lambda: Recurrent(nn.LSTM, "every", bidirectional=True), SEQUENCE),
    "two GRUs of both directions": (lambda: Recurrent(nn.GRU, "last", layers=2, bidirectional=True), SEQUENCE),
    "keywords": (Keywords, SPECTROGRAM),
}


def made(name: str, *, dynamo: bool, is_fixed: bool = True) -> tuple[bytes, bytes]:
    """A network as PyTorch exports it, and quantised."""
    make, shape = NETWORKS[name]
    torch.manual_seed(1)
    samples = torch.randn(16, *shape)
    model, target = settle(make(), samples, least=0.0), io.BytesIO()
    dynamic = {"dynamic_shapes": ({0: torch.export.Dim("batch")},)} if dynamo else {"dynamic_axes": {"x": {0: "batch"}}}
    example = samples[:1] if is_fixed else samples[:2]
    more = {} if is_fixed else dynamic
    torch.onnx.export(model, (example,), target, input_names=["x"], dynamo=dynamo, verbose=False, **more)
    return target.getvalue(), quantize(target.getvalue(), {"x": samples.numpy()})


#: Networks that are tried each time as the older exporter writes them, too: the same operators with other words around.
OLDER = ("GRU", "keywords")
EXPORTS = [
    *((name, True) for name in NETWORKS),
    *(pytest.param(name, False, marks=() if name in OLDER else pytest.mark.regress) for name in NETWORKS),
]


@pytest.mark.parametrize(("name", "dynamo"), EXPORTS)
def test_every_byte_is_onnx_runtimes(name: str, dynamo: bool) -> None:
    exported, data = made(name, dynamo=dynamo)
    rows = describe(import_model(data))
    others = {row.kind for row in rows if row.where != "accelerator"}
    assert others <= {"QuantizeLinear", "DequantizeLinear", "Reshape"}
    samples = {"x": np.random.default_rng(1).normal(size=(8, *NETWORKS[name][1])).astype(np.float32)}
    assert max(relative_errors(Model(exported), Model(data), samples).values()) < 0.05
    assert_right(verify(data, PRESETS["ecp5-85k"], samples=2))


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("name", ["two LSTMs, state", "GRU"])
def test_a_batch_of_any_size(name: str, dynamo: bool) -> None:
    """Initial states have the shape of the batch, so it is set to one sample."""
    _, data = made(name, dynamo=dynamo, is_fixed=False)
    assert_right(verify(data, PRESETS["ecp5-85k"], samples=1))


@pytest.mark.parametrize("name", ["LSTM", "two GRUs, every step", "keywords"])
def test_networks_larger_than_the_memories(name: str) -> None:
    assert_right(verify(made(name, dynamo=False)[1], PRESETS["tiny"], samples=1))
