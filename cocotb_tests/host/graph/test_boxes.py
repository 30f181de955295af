"""Arrangements as pieces: every element at its place, in few pieces, and the same for some rows or other channels."""

from __future__ import annotations

import numpy as np
import pytest

from lutterfly.host.graph import Arrange, ChannelRule, Int8, Shape, Tensor, boxes, copies
from lutterfly.host.graph.boxes import MOST_PIECES

HEIGHT, WIDTH, CHANNELS = SHAPE = (6, 4, 12)
EVERY = np.arange(HEIGHT * WIDTH * CHANNELS).reshape(SHAPE)
FIRST = EVERY.transpose(2, 0, 1)
RNG = np.random.default_rng(0)
#: A code that is no element.
FIVE = -129 - 5


def surrounded(**given: object) -> np.ndarray:
    return np.pad(EVERY, ((2, 1), (0, 2), (0, 0)), **given)


#: What the elements are, how many pieces that takes, and the window.
CASES: dict[str, tuple[np.ndarray, int, tuple[tuple[int, int], ...]]] = {
    "shuffle": (EVERY.reshape(HEIGHT, WIDTH, 2, 6).swapaxes(2, 3).reshape(SHAPE), 2, ((1, 1), (1, 1), (1, 1))),
    "transpose": (EVERY.swapaxes(0, 1), 1, ((6, 4), (1, 1), (4, 6))),
    "axes": (EVERY.transpose(2, 0, 1), 1, ((6, 4), (1, 1), (12, 6))),
    "backwards": (EVERY[::-1], 1, ((6, 1), (1, 1), (6, 1))),
    "columns backwards": (EVERY[:, ::-1], 1, ((1, 4), (1, 1), (1, 4))),
    "every second": (EVERY[::2, 1::2], 1, ((1, 1), (2, 2), (1, 1))),
    "reflected": (surrounded(mode="reflect"), 6, ((6, 4), (1, 1), (9, 6))),
    "edge": (surrounded(mode="edge"), 6, ((4, 3), (1, 1), (1, 1))),
    "constant": (surrounded(constant_values=FIVE), 4, ((1, 1), (1, 1), (1, 1))),
    "constant channels": (
        np.pad(EVERY, ((0, 0), (0, 0), (1, 15)), constant_values=FIVE),
        3,
        ((1, 1), (1, 1), (1, 1)),
    ),
    "nothing but a code": (np.full((7, 4, 3), FIVE), 1, ((6, 4), (1, 1), (7, 4))),
    "rows to channels": (FIRST.reshape(24, 3, WIDTH).transpose(1, 2, 0), 2, ((4, 1), (1, 1), (1, 1))),
    "channels to rows": (FIRST.reshape(6, 12, WIDTH).transpose(1, 2, 0), 2, ((6, 1), (1, 1), (12, 1))),
    "unshuffled": (
        FIRST.reshape(CHANNELS, 3, 2, 2, 2).transpose(0, 2, 4, 1, 3).reshape(48, 3, 2).transpose(1, 2, 0),
        4,
        ((2, 2), (2, 2), (1, 1)),
    ),
    "columns apart": (EVERY[:2, :1].reshape(2, 4, 3), 1, ((1, 4), (1, 1), (1, 4))),
}


def arranged(moved: np.ndarray, *shapes: Shape) -> Arrange:
    names = [f"x{at}" for at in range(len(shapes))]
    layer = copies.arrange("moved", "", names, "y", shapes, moved)
    assert layer is not None
    assert layer.window.output_size(*shapes[0][:2]) == moved.shape[:2]
    return layer


def evaluated(layer: Arrange, target: Shape, *codes: Int8) -> Int8:
    values = dict(zip(layer.inputs, codes, strict=True))
    tensors = {name: Tensor(name, value.shape, 1.0, 0, ()) for name, value in values.items()}
    return layer.evaluate(values, tensors | {"y": Tensor("y", target, 1.0, 0, ())})["y"]


def expected(moved: np.ndarray, *codes: Int8) -> Int8:
    flat = np.concatenate([code.reshape(-1) for code in codes])
    return np.where(moved < 0, -129 - moved, flat[np.maximum(moved, 0)])


def random(shape: Shape) -> Int8:
    return RNG.integers(-128, 128, shape).astype(np.int8)


@pytest.mark.parametrize("name", CASES)
def test_every_element_is_at_its_place(name: str) -> None:
    moved, count, (kernel, stride, up) = CASES[name]
    layer, codes = arranged(moved, SHAPE), random(SHAPE)
    np.testing.assert_array_equal(evaluated(layer, moved.shape, codes), expected(moved, codes))
    assert len(layer.pieces) == count
    assert (layer.window.kernel, layer.window.stride, layer.window.up) == (kernel, stride, up)


@pytest.mark.parametrize("name", CASES)
def test_some_rows_are_computed_of_what_their_windows_reach(name: str) -> None:
    moved, codes = CASES[name][0], random(SHAPE)
    layer, height = arranged(moved, SHAPE), moved.shape[0]
    up, tried = layer.window.up[0], 0
    for start in range(0, height, up):
        rows = range(start, min(start + 2 * up, height))
        read = layer.window.rows_read(rows, HEIGHT)
        part = layer.of_rows(rows, HEIGHT)
        found = evaluated(part, (len(rows), *moved.shape[1:]), codes[read.start : read.stop])
        np.testing.assert_array_equal(found, expected(moved, codes)[rows.start : rows.stop])
        tried += 1
    assert tried
    assert up == 1 or layer.of_rows(range(1), HEIGHT) is None


@pytest.mark.parametrize("name", CASES)
def test_channels_in_other_orders(name: str) -> None:
    """Where channels are free, both ends may have any order."""
    moved, codes = CASES[name][0], random(SHAPE)
    layer = arranged(moved, SHAPE)
    outputs, inputs = RNG.permutation(moved.shape[2]), RNG.permutation(CHANNELS)
    is_free = layer.channel_rule(None, None) is ChannelRule.MOVED
    assert is_free == (name not in ("axes", "columns apart"))
    found = evaluated(layer.reordered(outputs, inputs), moved.shape, codes[..., inputs] if is_free else codes)
    whole = expected(moved, codes)
    np.testing.assert_array_equal(found, whole[..., outputs] if is_free else whole)


def test_several_inputs() -> None:
    other = (3, WIDTH, CHANNELS)
    more = np.arange(np.prod(other)).reshape(other) + EVERY.size
    for axis, shapes in ((0, (SHAPE, other)), (1, (SHAPE, SHAPE))):
        moved = np.concatenate([EVERY, more if axis == 0 else EVERY + EVERY.size], axis)
        layer, codes = arranged(moved, *shapes), [random(shape) for shape in shapes]
        assert [(part.source, part.keeps_pixels) for part in layer.pieces] == [(0, False), (1, False)]
        np.testing.assert_array_equal(evaluated(layer, moved.shape, *codes), expected(moved, *codes))


def test_inputs_of_one_row_are_there_as_they_are() -> None:
    shape = (1, WIDTH, CHANNELS)
    row = np.arange(WIDTH * CHANNELS).reshape(shape)
    moved = np.concatenate([row, row + row.size], 2)
    layer, codes = arranged(moved, shape, shape), [random(shape) for _ in range(2)]
    assert [(part.source, part.target, part.channels) for part in layer.pieces] == [
        (0, 0, CHANNELS),
        (1, CHANNELS, CHANNELS),
    ]
    np.testing.assert_array_equal(evaluated(layer, moved.shape, *codes), expected(moved, *codes))


def test_elements_of_one_place_in_several_inputs() -> None:
    """The inputs follow one another in one order: none is read beyond its end."""
    moved = np.stack([EVERY[2] + at * EVERY.size for at in range(3)])
    layer, codes = arranged(moved, *[SHAPE] * 3), [random(SHAPE) for _ in range(3)]
    assert [part.source for part in layer.pieces] == [0, 1, 2]
    np.testing.assert_array_equal(evaluated(layer, moved.shape, *codes), expected(moved, *codes))


def test_a_border_of_more_channels_than_there_are() -> None:
    moved = np.pad(EVERY, ((0, 0), (0, 0), (0, CHANNELS + 2)), constant_values=FIVE)
    layer, codes = arranged(moved, SHAPE), random(SHAPE)
    np.testing.assert_array_equal(evaluated(layer, moved.shape, codes), expected(moved, codes))


def test_as_many_pieces_as_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = CASES["unshuffled"][0]
    count = CASES["unshuffled"][1]
    monkeypatch.setattr(boxes, "MOST_PIECES", count)
    assert len(arranged(moved, SHAPE).pieces) == count
    monkeypatch.setattr(boxes, "MOST_PIECES", count - 1)
    assert copies.arrange("moved", "", ["x"], "y", [SHAPE], moved) is None


def test_any_order_is_too_many_pieces() -> None:
    few, many = (RNG.integers(0, EVERY.size, (size, 4, 1)) for size in (40, MOST_PIECES))
    layer, codes = arranged(few, SHAPE), random(SHAPE)
    assert 60 < len(layer.pieces) <= 160
    np.testing.assert_array_equal(evaluated(layer, few.shape, codes), expected(few, codes))
    assert copies.arrange("moved", "", ["x"], "y", [SHAPE], many) is None
