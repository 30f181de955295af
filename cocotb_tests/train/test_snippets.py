"""What README and docs show of training runs, on small models, and what comes of it is what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from cocotb_tests.support.checkout import Provider, Snippet, snippets
from lutterfly.golden.presets import DEFAULT_PRESET, PRESETS
from lutterfly.host.compiler import compile_model

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-train")
from torch import nn  # noqa: E402

from cocotb_tests.support.networks.torch_networks import MobileNetV2, settle  # noqa: E402

# PyTorch's exporter warns of what it uses itself.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")

TRAINING = [snippet for snippet in snippets() if snippet.trains and not snippet.is_exempt]


def fast() -> dict[str, object]:
    images = torch.rand(16, 3, 32, 32)
    model = settle(MobileNetV2(), images, least=0.3)
    return {"torch": torch, "model": model, "batches": [images], "samples": images.numpy()}


def binary() -> dict[str, object]:
    return {"torch": torch, "samples": torch.rand(2, 3, 32, 32).numpy()}


def sparse() -> dict[str, object]:
    model = nn.Sequential(
        *(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)),
    )
    sample = torch.rand(2, 3, 8, 8)
    return {"torch": torch, "Path": Path, "model": model, "sample": sample, "samples": sample.numpy(), "epochs": 2}


PROVIDERS: dict[str, Provider] = {"docs/binary.md 2": binary, "docs/fpc.md 1": fast, "docs/sparse.md 2": sparse}


@pytest.mark.parametrize("snippet", TRAINING, ids=lambda snippet: snippet.key)
def test_a_snippet_trains_what_the_default_configuration_runs(
    snippet: Snippet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names = snippet.run(PROVIDERS.get(snippet.key, dict)())
    # The file is closed only when nothing refers to it any more.
    names.clear()
    data = Path("model.onnx").read_bytes()
    assert compile_model(data, PRESETS[DEFAULT_PRESET], "model").layers


def test_providers_are_of_snippets_that_exist():
    assert PROVIDERS.keys() - {snippet.key for snippet in TRAINING} == set()
