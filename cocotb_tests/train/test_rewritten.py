"""Networks with what `quantize` rewrites, from PyTorch to the simulated core: the bytes of ONNX Runtime."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import onnx
import pytest

from lutterfly.golden.presets import PRESETS
from lutterfly.host.frontend import describe, import_model
from lutterfly.host.model.model import Model
from lutterfly.host.quantize import quantize
from lutterfly.host.quantize.static_quantisation import relative_errors
from lutterfly.host.session.verify import verify
from oracles.exactness import assert_right, needs_reference

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-train")
from torch import nn  # noqa: E402

from networks.torch_networks import settle  # noqa: E402
from networks.torch_rewritten import Averaged, PreActivated, SlopedNetwork  # noqa: E402

pytestmark = [
    needs_reference,
    # PyTorch's exporter warns of what it uses itself.
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]

#: Each network, the shape of its input, and operators that it is exported with and that are no longer there.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, int, int], set[str]]] = {
    "slopes": (SlopedNetwork, (1, 14, 10), {"PRelu"}),
    "pre-activated": (PreActivated, (1, 12, 10), {"BatchNormalization", "AveragePool"}),
    "averages": (Averaged, (1, 12, 18), {"AveragePool"}),
}


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_byte_is_onnx_runtimes(name: str, dynamo: bool) -> None:
    make, shape, rewritten = NETWORKS[name]
    torch.manual_seed(1)
    images = torch.randn(64, *shape)
    model, target = settle(make(), images, least=0.0), io.BytesIO()
    torch.onnx.export(model, (images[:1],), target, input_names=["image"], dynamo=dynamo, verbose=False)
    exported = target.getvalue()
    assert rewritten <= {node.op_type for node in onnx.load_from_string(exported).graph.node}
    data = quantize(exported, {"image": images.numpy()})
    assert not rewritten & {node.op_type for node in onnx.load_from_string(data).graph.node}
    rows = describe(import_model(data))
    assert {row.where for row in rows if row.kind not in ("QuantizeLinear", "DequantizeLinear")} == {"accelerator"}
    others = {"image": np.random.default_rng(1).normal(size=(8, *shape)).astype(np.float32)}
    assert max(relative_errors(Model(exported), Model(data), others).values()) < 0.1
    assert_right(verify(data, PRESETS["ecp5-85k"], samples=2))


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_larger_than_the_memories(name: str) -> None:
    make, shape, _ = NETWORKS[name]
    torch.manual_seed(1)
    images = torch.randn(16, *shape)
    model, target = settle(make(), images, least=0.0), io.BytesIO()
    torch.onnx.export(model, (images[:1],), target, input_names=["image"], dynamo=False, verbose=False)
    assert_right(verify(quantize(target.getvalue(), {"image": images.numpy()}), PRESETS["tiny"], samples=1))
