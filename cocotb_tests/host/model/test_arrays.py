"""What a model's inputs look like, as ONNX Runtime describes them."""

from __future__ import annotations

from lutterfly.host.model.arrays import TensorInfo


def test_dimensions_that_are_not_fixed_count_as_one() -> None:
    assert TensorInfo("x", ["batch", 3, "height", None], "tensor(float)").sample_shape == (3, 1, 1)
    assert TensorInfo("x", [2, 5, 4], "tensor(float)").sample_shape == (5, 4)
