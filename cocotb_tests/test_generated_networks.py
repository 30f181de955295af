"""Generated networks of every supported layer: the golden functions have ONNX Runtime's bytes, programs have theirs.

A network that fails shrinks to a small one, which is kept as a file: move it to ``regressions`` and it is tried ever
after.
"""
from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from blocks import BLOCKS, networks
from exactness import assert_exact, needs_reference
from execution import differing_bytes
from generated import Generated, Limits
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from lutterfly.golden.config import PRESETS
from lutterfly.golden.machine import ORDERS
from lutterfly.host import reference
from lutterfly.host.compiler import compile_graph
from lutterfly.host.frontend import import_model

pytestmark = needs_reference

REGRESSIONS = Path(__file__).parent / "regressions"
#: A slow machine is no failure, and neither is a network that is slow to draw.
PATIENT = settings(deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)


@contextlib.contextmanager
def kept(network: Generated) -> Iterator[None]:
    """Write the network to a file if the body fails."""
    try:
        yield
    except Exception as error:
        path = Path(tempfile.gettempdir()) / "lutterfly_failing.onnx"
        path.write_bytes(network.model)
        error.add_note(f"{network.text}; kept as {path}")
        raise


def check(network: Generated) -> None:
    """No byte of any quantised tensor differs, and the accelerator computes them all."""
    try:
        reference.reference(network.model)
    except reference.RUNTIME_ERRORS:
        # It fuses a Pad into a MaxPool, and then refuses the result for borders as wide as the kernel.
        assume(False)
    with kept(network):
        assert_exact(network.model, network.feeds(0))


@pytest.mark.parametrize("kind", BLOCKS)
def test_one_block(kind: str):
    @given(networks(kinds=[kind], most=1))
    @settings(PATIENT, max_examples=12, derandomize=True)
    def run(network: Generated) -> None:
        check(network)

    run()


@given(networks())
@settings(PATIENT, max_examples=60, derandomize=True)
def test_networks(network: Generated):
    check(network)


@pytest.mark.regress
@given(networks(limits=Limits(map_bytes=8 << 10), most=8))
@settings(PATIENT, max_examples=600)
def test_many_networks(network: Generated):
    check(network)


@pytest.mark.parametrize("preset", ["tiny", "ecp5-85k"])
@given(network=networks(), order=st.sampled_from(ORDERS))
@settings(PATIENT, max_examples=25, derandomize=True)
def test_programs_of_networks(preset: str, network: Generated, order: str):
    graph, config = import_model(network.model), PRESETS[preset]
    with kept(network):
        assert differing_bytes(graph, compile_graph(graph, config), config, order=order) == 0


@pytest.mark.parametrize("path", sorted(REGRESSIONS.glob("*.onnx")), ids=lambda path: path.stem)
def test_networks_that_once_failed(path: Path):
    value, = onnx.load(path).graph.input
    shape = tuple(dimension.dim_value or 1 for dimension in value.type.tensor_type.shape.dim)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    limits = np.iinfo(dtype)
    codes = np.random.default_rng(0).integers(limits.min, limits.max + 1, shape, dtype)
    assert_exact(path.read_bytes(), {value.name: codes}, covered=False)
