"""Generated networks of every supported layer: golden functions, programs and the core have ONNX Runtime's bytes.

A network that fails shrinks to a small one, which is kept in ``regressions`` and tried ever after, see ``kept.py``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cocotb_tests.support.networks.blocks import BLOCKS, networks
from cocotb_tests.support.networks.generated import Generated, Limits
from cocotb_tests.support.oracles.exactness import (
    CONFIG_KEY,
    PATIENT,
    REGRESSIONS,
    assert_exact,
    assert_right,
    kept,
    needs_reference,
)
from cocotb_tests.support.oracles.execution import differing_bytes
from cocotb_tests.support.quantised import few_outputs
from lutterfly.golden.config import Config
from lutterfly.golden.machine.machine import ORDERS
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import compile_graph
from lutterfly.host.frontend import import_model
from lutterfly.host.model import reference, runtime
from lutterfly.host.model.model import Model
from lutterfly.host.session.verify import verify

pytestmark = needs_reference

#: Two presets, and a core that computes two results of three taps at a time.
CORES = {name: PRESETS[name] for name in ("tiny", "ecp5-85k")} | {"pairs": few_outputs.WINOGRAD_CORES[1]}


def assume_a_reference(network: Generated) -> None:
    try:
        reference.reference(Model(network.model))
    except runtime.RUNTIME_ERRORS:
        # It fuses a Pad into a MaxPool, and then refuses the result for borders as wide as the kernel.
        assume(False)


def check(network: Generated, name: str) -> None:
    """No byte of any quantised tensor differs, and the accelerator computes them all."""
    assume_a_reference(network)
    with kept(network, name):
        assert_exact(network.model, network.feeds(0))


def check_on_the_core(model: bytes, name: str) -> None:
    """No byte of any quantised tensor differs on the golden machine and on the simulated core, and cycles are right."""
    assert_right(verify(model, CORES[name], samples=1))


@pytest.mark.regress
@pytest.mark.parametrize("kind", BLOCKS)
def test_one_block(kind: str):
    @given(networks(kinds=[kind], most=1))
    @settings(PATIENT, max_examples=12, derandomize=True)
    def run(network: Generated) -> None:
        check(network, kind.replace(" ", "_"))

    run()


@pytest.mark.regress
@given(networks())
@settings(PATIENT, max_examples=60, derandomize=True)
def test_networks(network: Generated):
    check(network, "network")


@pytest.mark.regress
@given(networks(limits=Limits(map_bytes=8 << 10), most=8))
@settings(PATIENT, max_examples=600)
def test_many_networks(network: Generated):
    check(network, "larger_network")


@pytest.mark.regress
@pytest.mark.parametrize("name", CORES)
@given(network=networks(), order=st.sampled_from(ORDERS))
@settings(PATIENT, max_examples=25, derandomize=True)
def test_programs_of_networks(name: str, network: Generated, order: str):
    graph, config = import_model(network.model), CORES[name]
    with kept(network, f"program_{name}"):
        assert differing_bytes(graph, compile_graph(graph, config), config, order=order) == 0


@pytest.mark.regress
@pytest.mark.parametrize("name", CORES)
@given(network=networks())
@settings(PATIENT, max_examples=10, derandomize=True)
def test_networks_on_the_core(name: str, network: Generated):
    assume_a_reference(network)
    with kept(network, f"core_{name}"):
        check_on_the_core(network.model, name)


@pytest.mark.regress
@pytest.mark.parametrize("name", CORES)
@given(network=networks(most=6))
@settings(PATIENT, max_examples=300)
def test_many_networks_on_the_core(name: str, network: Generated):
    assume_a_reference(network)
    with kept(network, f"core_{name}"):
        check_on_the_core(network.model, name)


@pytest.mark.regress
@pytest.mark.parametrize("path", sorted(REGRESSIONS.glob("*.onnx")), ids=lambda path: path.stem)
def test_networks_that_once_failed(path: Path):
    model = onnx.load(path)
    rng, feeds = np.random.default_rng(0), {}
    for value in model.graph.input:
        shape = tuple(dimension.dim_value or 1 for dimension in value.type.tensor_type.shape.dim)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        codes = rng.integers(-128, 128, shape)
        feeds[value.name] = codes.astype(np.int8).view(dtype) if dtype.itemsize == 1 else codes.astype(dtype)
    assert_exact(path.read_bytes(), feeds, covered=False)
    configs = [*CORES.values()]
    configs += [Config.from_json(entry.value) for entry in model.metadata_props if entry.key == CONFIG_KEY]
    for config in configs:
        assert_right(verify(path.read_bytes(), config, samples=1))


@pytest.mark.regress
def test_a_failing_network_shrinks_to_a_small_one_that_is_kept(tmp_path: Path):
    @given(networks(kinds=["residual", "convolve", "maximum"]))
    @settings(PATIENT, max_examples=100, derandomize=True, database=None)
    def run(network: Generated) -> None:
        with kept(network, "sum", tmp_path):
            kinds = [node.op_type.removeprefix("QLinear") for node in onnx.load_from_string(network.model).graph.node]
            assert kinds.count("Add") < 2

    with pytest.raises(AssertionError) as failure:
        run()
    (path,) = tmp_path.iterdir()
    assert path.name == "failing_sum.onnx"
    assert failure.value.__notes__[0].endswith(f"kept as {path}")
    graph = onnx.load(path).graph
    kinds = [node.op_type.removeprefix("QLinear") for node in graph.node]
    # Each sum has a convolution on one side.
    assert sorted(kinds) == ["Add", "Add", "Conv", "Conv"]
    assert all(dimension.dim_value == 1 for dimension in graph.input[0].type.tensor_type.shape.dim[1:])
