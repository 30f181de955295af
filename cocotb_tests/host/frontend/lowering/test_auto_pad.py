"""Convolutions with auto_pad SAME and a stride larger than the kernel: ONNX Runtime leaves out rows and columns."""

from __future__ import annotations

import numpy as np
import pytest

from cocotb_tests.support.networks.generated import FORMS, TINY, Maker
from cocotb_tests.support.oracles.exactness import assert_exact, needs_reference
from lutterfly.host.frontend import ModelError, import_model
from lutterfly.host.frontend.lowering import products
from lutterfly.host.graph import Convolution

pytestmark = needs_reference

SAME = ("SAME_UPPER", "SAME_LOWER")


def convolution(
    auto_pad: str,
    sides: tuple[int, ...],
    kernel: int,
    stride: int,
    *,
    form: str = "qdq",
    channels: int = 3,
    groups: int = 1,
) -> bytes:
    made = Maker(np.random.default_rng(0), form, False, TINY)
    made.start((1, channels, *sides))
    rank = len(sides)
    made.product(
        "Conv",
        (channels, channels // groups, *[kernel] * rank),
        0,
        (1, channels, *(-(-side // stride) for side in sides)),
        auto_pad=auto_pad,
        group=groups,
        kernel_shape=[kernel] * rank,
        strides=[stride] * rank,
    )
    return made.serialise()


def feeds(*shape: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).integers(-128, 128, (1, *shape), np.int8)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("auto_pad", SAME)
@pytest.mark.parametrize("groups", [1, 3])
def test_rows_and_columns_are_left_out_as_onnx_runtime_does(auto_pad: str, form: str, groups: int):
    # Borders of -1 to -5: both roundings of the half.
    for kernel, sides in ((1, (9, 14)), (2, (11, 12)), (1, (12, 13))):
        graph = assert_exact(convolution(auto_pad, sides, kernel, 7, form=form, groups=groups), feeds(3, *sides))
        assert [type(layer) for layer in graph.layers] == [Convolution]


@pytest.mark.regress
@pytest.mark.parametrize("auto_pad", SAME)
def test_one_dimension(auto_pad: str):
    for side in range(5, 17):
        assert_exact(convolution(auto_pad, (side,), 1, 8), feeds(3, side))


def test_every_convolution_is_compared_with_onnx_runtime(monkeypatch):
    data = convolution("SAME_UPPER", (12, 12), 1, 4)
    import_model(data)
    monkeypatch.setattr(products, "skipped", lambda *_: (0, 0))
    with pytest.raises(
        ModelError,
        match=r"^model: ONNX Runtime gives other bytes for Conv '.*' than its layers "
        r"here; replace the operator, and report the model$",
    ):
        import_model(data)
