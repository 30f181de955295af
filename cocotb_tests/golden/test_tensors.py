"""Tensors in memory: codes and binary values to bytes and back."""

from __future__ import annotations

import numpy as np
import pytest

from lutterfly.golden.machine.images import tensor_codes, tensor_image


@pytest.mark.parametrize("channels", [1, 7, 8, 9, 300])
def test_binary_values_are_packed_pixel_by_pixel(channels: int) -> None:
    codes = np.random.default_rng(channels).choice([-1, 1], (2, 3, channels)).astype(np.int8)
    image = tensor_image(codes, 1)
    assert image.shape == (2, 3, -(-channels // 8))
    for y, x, channel in np.ndindex(codes.shape):
        assert (image[y, x, channel // 8] >> channel % 8 & 1) == (codes[y, x, channel] == 1)
    np.testing.assert_array_equal(tensor_codes(image.reshape(-1), codes.shape, 1), codes)


def test_codes_are_their_bytes() -> None:
    codes = np.arange(-12, 12, dtype=np.int8).reshape(2, 3, 4)
    image = tensor_image(codes, 8)
    assert image.tobytes() == codes.tobytes()
    np.testing.assert_array_equal(tensor_codes(image.reshape(-1), codes.shape, 8), codes)
