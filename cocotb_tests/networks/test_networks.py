"""The networks of MLPerf Tiny: ONNX Runtime's bytes at every quantised tensor, from golden functions and core alike."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import onnx
import pytest

from cocotb_tests.support.networks.butterflies import with_fast_pointwise
from cocotb_tests.support.oracles.exactness import (
    assert_exact,
    assert_right,
    differing,
    integer_tensors,
    needs_reference,
)
from lutterfly.golden.engines import FPC
from lutterfly.golden.engines.fpc import FpcConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.host.frontend import describe, import_model
from lutterfly.host.session.verify import verify
from lutterfly.host.simulation.simulator import MemorySettings

pytestmark = needs_reference

NETWORKS = ("ad", "ic", "kws", "vww")
FORMS = ("qop", "qdq")
#: Cycles of an inference on `ecp5-85k` from start to interrupt, at most.
BOUNDS = {"ad": 3_000, "ic": 122_800, "kws": 31_600, "vww": 102_400}
#: Twice the columns, as many requantisers, five rows of depthwise layers at once, and two results of three taps by four
#: products.
SQUARE = PRESETS["gw5a-138"]
#: With a butterfly as well, and all commands resident.
SQUARE_FAST = dataclasses.replace(SQUARE, engines=SQUARE.engines.having(FPC, FpcConfig(256)), resident_commands=64)
SQUARE_BOUNDS = {"ad": 1_900, "ic": 42_500, "kws": 13_900, "vww": 33_700}


def random_codes(data: bytes, seed: int) -> dict[str, np.ndarray]:
    (value,) = onnx.load_from_string(data).graph.input
    shape = [dimension.dim_value or 1 for dimension in value.type.tensor_type.shape.dim]
    return {value.name: np.random.default_rng(seed).integers(-128, 128, shape, np.int8)}


@pytest.mark.sampled
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 16), marks=pytest.mark.regress)], ids=str)
def test_every_byte_is_onnx_runtimes(models_dir, network: str, form: str, seeds: range):
    data = (models_dir / f"{network}_{form}.onnx").read_bytes()
    for seed in seeds:
        feeds = random_codes(data, seed)
        _, differences = differing(data, feeds)
        assert not any(differences.values()), differences
        # Softmax, at the end, is the host's.
        softmax = onnx.load_from_string(data).graph.output[0].name
        assert integer_tensors(data, feeds) - differences.keys() == ({softmax} if network != "ad" else set())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("network", "kinds"),
    [
        ("ad", {"fully": 10}),
        ("ic", {"convolution": 9, "addition": 3, "average": 1, "fully": 1}),
        ("kws", {"convolution": 5, "depthwise": 4, "average": 1, "fully": 1}),
        ("vww", {"convolution": 14, "depthwise": 13, "average": 1, "fully": 1}),
    ],
)
def test_layers_on_the_accelerator(models_dir, network: str, form: str, kinds: dict[str, int]):
    data = (models_dir / f"{network}_{form}.onnx").read_bytes()
    rows = [row for row in describe(import_model(data)) if row.where == "accelerator"]
    assert Counter(row.kind.split()[0] for row in rows) == kinds


@pytest.mark.parametrize("form", FORMS)
def test_the_autoencoder_in_detail(models_dir, form: str):
    data = (models_dir / f"ad_{form}.onnx").read_bytes()
    graph = assert_exact(data, random_codes(data, 0))
    assert [item.weights.shape for item in graph.layers][:2] == [(128, 1, 1, 640), (128, 1, 1, 128)]
    assert (graph.inputs, graph.outputs) == (["input"], ["op9_fully_connected"])
    assert not graph.head
    assert not graph.tail


@pytest.mark.demo_core
@pytest.mark.sampled
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("samples", [2, pytest.param(16, marks=pytest.mark.regress)])
def test_bytes_and_cycles_on_the_core(models_dir, network: str, form: str, samples: int):
    found = verify((models_dir / f"{network}_{form}.onnx").read_bytes(), PRESETS["ecp5-85k"], samples=samples)
    assert_right(found)
    assert found.cycles <= BOUNDS[network]


@pytest.mark.regress
@pytest.mark.parametrize("network", NETWORKS)
def test_bytes_and_cycles_on_twice_the_columns(models_dir, network: str):
    data = (models_dir / f"{network}_qdq.onnx").read_bytes()
    found = verify(data, SQUARE, samples=1)
    assert_right(found)
    assert found.cycles <= SQUARE_BOUNDS[network]


@pytest.mark.regress
def test_bytes_and_cycles_of_fast_layers_on_twice_the_columns(models_dir):
    model = with_fast_pointwise(onnx.load(models_dir / "kws_qop.onnx"))
    found = verify(model.SerializeToString(), SQUARE_FAST, samples=1)
    assert_right(found)
    assert found.cycles <= 8_000


@pytest.mark.sampled(1)
@pytest.mark.parametrize("network", NETWORKS)
def test_bytes_and_cycles_on_the_smallest_core(models_dir, network: str):
    """Where neither feature maps nor weights fit, layers run in parts and weights are streamed."""
    assert_right(verify((models_dir / f"{network}_qop.onnx").read_bytes(), PRESETS["tiny"], samples=1))


@pytest.mark.demo_core
@pytest.mark.sampled(1)
@pytest.mark.parametrize("network", NETWORKS)
def test_bytes_on_a_slow_bus(models_dir, network: str):
    settings = MemorySettings(read_latency=150, write_latency=90, beat_interval=2, stall_probability=0.3, seed=5)
    data = (models_dir / f"{network}_qop.onnx").read_bytes()
    found = verify(data, PRESETS["ecp5-85k"], samples=1, settings=settings)
    assert found.bytes
    assert not found.mismatched_bytes
