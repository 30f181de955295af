"""Generated networks of every supported layer have ONNX Runtime's bytes in the golden functions.

A network that fails shrinks to a small one, which is kept as a file: move it to ``regressions`` and it is tried ever
after.
"""
from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from blocks import BLOCKS, networks
from exactness import assert_exact, needs_reference
from generated import Generated, Limits
from hypothesis import HealthCheck, assume, given, settings

from lutterfly.host import reference

pytestmark = needs_reference

REGRESSIONS = Path(__file__).parent / "regressions"
#: A slow machine is no failure, and neither is a network that is slow to draw.
PATIENT = settings(deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)


def check(network: Generated) -> None:
    """No byte of any quantised tensor differs, and the accelerator computes them all."""
    try:
        reference.reference(network.model)
    except reference.RUNTIME_ERRORS:
        # It fuses a Pad into a MaxPool, and then refuses the result for borders as wide as the kernel.
        assume(False)
    try:
        assert_exact(network.model, network.feeds(0))
    except Exception as error:
        kept = Path(tempfile.gettempdir()) / "lutterfly_failing.onnx"
        kept.write_bytes(network.model)
        error.add_note(f"{network.text}; kept as {kept}")
        raise


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


@pytest.mark.parametrize("path", sorted(REGRESSIONS.glob("*.onnx")), ids=lambda path: path.stem)
def test_networks_that_once_failed(path: Path):
    value, = onnx.load(path).graph.input
    shape = tuple(dimension.dim_value or 1 for dimension in value.type.tensor_type.shape.dim)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    limits = np.iinfo(dtype)
    codes = np.random.default_rng(0).integers(limits.min, limits.max + 1, shape, dtype)
    assert_exact(path.read_bytes(), {value.name: codes}, covered=False)
