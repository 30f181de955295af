"""Binary values: packed and back, bits that agree, inner products and convolutions against plain numbers."""

from __future__ import annotations

import numpy as np
import pytest

from lutterfly.golden.engines.xnor import agreeing
from lutterfly.golden.isa import LIST_COUNT_LSB, LIST_FIRE
from lutterfly.golden.numerics import binary
from lutterfly.golden.numerics.convolution import Kernels, convolve
from lutterfly.golden.numerics.windows import step_counts


def signs(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.choice(np.array([-1, 1], np.int8), shape)


def test_zero_is_plus_one_and_channel_0_the_lowest_bit() -> None:
    assert binary.pack(np.array([0, -1, 3, -7, -1, -1, -1, -1, 0.5])).tolist() == [0b101, 1]
    assert binary.pack(np.array([-0.0])).tolist() == [1]


@pytest.mark.parametrize("channels", [1, 7, 8, 9, 31, 32, 33, 64, 100, 128, 256])
@pytest.mark.parametrize("word_bits", [8, 32, 64, 128, 256])
def test_packed_values_come_back(channels: int, word_bits: int) -> None:
    values = signs(np.random.default_rng(channels), 3, 2, channels)
    packed = binary.pack(values, word_bits=word_bits)
    assert packed.shape == (3, 2, -(-channels // word_bits) * word_bits // 8)
    np.testing.assert_array_equal(binary.unpack(packed, channels), values)
    assert np.bitwise_count(packed).sum() == np.count_nonzero(values == 1)


@pytest.mark.parametrize("channels", [1, 8, 13, 300])
def test_inner_products_are_those_of_the_values(channels: int) -> None:
    rng = np.random.default_rng(channels)
    x, w = signs(rng, 5, 1, channels), signs(rng, 4, channels)
    expected = (x.astype(np.int64) * w).sum(axis=-1)
    found = binary.inner_product(binary.pack(x), binary.pack(w), channels)
    np.testing.assert_array_equal(found, expected)
    agree = np.bitwise_count(~(binary.pack(x) ^ binary.pack(w))).sum(axis=-1) - (-channels % 8)
    np.testing.assert_array_equal(found, 2 * agree.astype(np.int32) - channels)


@pytest.mark.parametrize("seed", range(30))
def test_convolutions_are_those_of_the_values(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kernel, stride, dilation = (tuple(int(n) for n in rng.integers(1, most, 2)) for most in (6, 4, 3))
    channels, outputs = int(rng.integers(1, 301)), int(rng.integers(1, 6))
    pads = tuple(int(n) for n in rng.integers(0, 3, 4))
    height, width = (dilation[axis] * (kernel[axis] - 1) + int(rng.integers(1, 6)) for axis in (0, 1))
    pad_value = int(rng.choice([-1, 1]))
    values, weights = signs(rng, height, width, channels), signs(rng, outputs, *kernel, channels)
    found = binary.convolve_binary(values, weights, pad_value=pad_value, stride=stride, dilation=dilation, pads=pads)
    top, left, bottom, right = pads
    padded = np.pad(values, ((top, bottom), (left, right), (0, 0)), constant_values=pad_value)
    expected = convolve(padded, weights, np.zeros(outputs, np.int32), zero_point=0, stride=stride, dilation=dilation)
    np.testing.assert_array_equal(found, expected)
    # The same of products, as graphs are evaluated.
    bias = rng.integers(-1000, 1000, outputs).astype(np.int32)
    geometry = {"stride": stride, "dilation": dilation, "pads": pads}
    np.testing.assert_array_equal(Kernels(weights, bias).totals(values, border=pad_value, **geometry), found + bias)


def test_results_are_written_into_the_middle_of_a_map_that_has_its_border() -> None:
    rng = np.random.default_rng(0)
    first, second = signs(rng, 7, 3, 3, 5), signs(rng, 2, 3, 3, 7)
    values = signs(rng, 6, 5, 5)
    stored, middle = binary.bordered(6, 5, 7, (1, 1, 1, 1), -1)
    assert np.shares_memory(stored, middle)
    totals = binary.convolve_binary(values, first, pad_value=1, pads=(1, 1, 1, 1))
    middle[:] = binary.pack(totals)
    np.testing.assert_array_equal(
        binary.convolve_stored(stored, binary.pack(second), 7),
        binary.convolve_binary(np.where(totals >= 0, 1, -1), second, pad_value=-1, pads=(1, 1, 1, 1)),
    )


def test_a_fully_connected_layer_is_a_product_of_matrices() -> None:
    rng = np.random.default_rng(3)
    values, weights = signs(rng, 4, 784), signs(rng, 784, 10)
    np.testing.assert_array_equal(binary.fully_connected(values, weights), values.astype(np.int32) @ weights)


@pytest.mark.parametrize("value", [0, 2, -128])
def test_another_pad_value_is_refused(value: int) -> None:
    values, weights = np.ones((3, 3, 2), np.int8), np.ones((1, 3, 3, 2), np.int8)
    with pytest.raises(ValueError, match=rf"^the pad value of a binary map must be \+1 or -1, not {value}: "):
        binary.convolve_binary(values, weights, pad_value=value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: binary.pack(np.ones(3), word_bits=12), "^word_bits must be a multiple of 8, not 12$"),
        (lambda: binary.unpack(np.zeros(1, np.uint8), 9), "^packed must have 9 bits, not 8$"),
        (
            lambda: binary.convolve_binary(np.ones((3, 3, 4)), np.ones((1, 1, 1, 5))),
            "^values must have the 5 channels of weights, not 4$",
        ),
        (
            lambda: binary.convolve_binary(np.ones((3, 3, 4)), np.ones((1, 4, 3, 4))),
            r"^kernel must be at most the map with its borders \(3, 3\), not \(4, 3\) with its dilation$",
        ),
        (
            lambda: binary.convolve_stored(np.zeros((3, 3, 1), np.uint8), np.zeros((1, 1, 1, 2), np.uint8), 9),
            "^stored and weights must have the bytes of 9 channels, not 1 and 2$",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_refused(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_only_bytes_are_packed() -> None:
    with pytest.raises(TypeError, match=r"^x must be uint8, not int8$"):
        binary.inner_product(np.zeros(1, np.int8), np.zeros(1, np.uint8), 8)


# XNOR-popcount: bits that agree are inner products of binary values.


@pytest.mark.parametrize(("steps", "lanes", "columns"), [(1, 4, 2), (9, 16, 8), (5, 32, 3)])
def test_less_the_number_of_values_it_is_their_inner_product(steps: int, lanes: int, columns: int) -> None:
    rng = np.random.default_rng(steps)
    channels = 8 * lanes
    x, w = (rng.choice([-1, 1], shape) for shape in ((6, steps, channels), (steps, columns, channels)))
    found = agreeing(binary.pack(x).view(np.int8), binary.pack(w).view(np.int8))
    expected = np.einsum("psc,snc->pn", x, w)
    np.testing.assert_array_equal(found - steps * channels, expected)


def test_bytes_that_do_not_count_add_nothing() -> None:
    rng = np.random.default_rng(1)
    x, w = (rng.choice([-1, 1], shape) for shape in ((6, 5, 128), (5, 3, 128)))
    counted = np.arange(16) < np.array([16, 1, 7, 15, 16])[:, None]
    found = agreeing(binary.pack(x).view(np.int8), binary.pack(w).view(np.int8), counted)
    expected = np.einsum("psc,snc,sc->pn", x, w, counted.repeat(8, axis=1))
    np.testing.assert_array_equal(found - 8 * counted.sum(), expected)


def test_what_stands_in_a_list_says_how_many_bytes_count() -> None:
    entries = np.array(
        [7 << LIST_COUNT_LSB | 300, 0, LIST_FIRE | 15 << LIST_COUNT_LSB, 16 << LIST_COUNT_LSB], np.uint32
    )
    assert step_counts({"list": 0, "steps": 4}, entries, lanes=16).tolist() == [7, 16, 15, 16]
    assert step_counts({"list": 1, "steps": 2}, entries, lanes=4).tolist() == [4, 3]


@pytest.mark.parametrize("name", ["words", "weights"])
def test_only_bytes_are_counted(name: str) -> None:
    arrays = {"words": np.zeros((2, 4), np.int8), "weights": np.zeros((2, 3, 4), np.int8)}
    arrays[name] = arrays[name].astype(np.int16)
    with pytest.raises(TypeError, match=rf"^{name} must be int8, not int16$"):
        agreeing(**arrays)


def test_words_of_other_steps_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^words must end in the 2 steps of 4 lanes of weights, not \(3, 4\)$"):
        agreeing(np.zeros((3, 4), np.int8), np.zeros((2, 3, 4), np.int8))
