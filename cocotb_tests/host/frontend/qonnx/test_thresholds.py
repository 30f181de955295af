"""Thresholds of signs: the sums that are looked at, where decisions change, and multipliers that fit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from cocotb_tests.support.networks.qonnx_networks import QonnxNetwork
from lutterfly.host.frontend import import_model
from lutterfly.host.frontend.qonnx import thresholds
from lutterfly.host.frontend.qonnx.chain import Evaluator
from lutterfly.host.frontend.qonnx.fit import _requantised, find_multiplier
from lutterfly.host.frontend.qonnx.products import Product
from lutterfly.host.frontend.qonnx.thresholds import Way, _directions, _refined, find_thresholds


@pytest.mark.parametrize("at_once", [2, 3, 5, 11])
def test_decisions_change_at_any_sum_of_any_part(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sums = np.arange(-5, 6)
    changes = sums[1:]
    monkeypatch.setattr(thresholds, "_AT_ONCE", at_once * (2 * len(changes) + 2))

    def evaluate(part: npt.NDArray[np.int64]) -> list[tuple[np.ndarray, list[np.ndarray]]]:
        rising = part[:, None] - changes + 0.5
        same = np.ones((len(part), 1))
        return [(np.hstack([rising, -rising, same, -same]), [])]

    channels = np.zeros(2 * len(changes) + 2, np.int64)
    found = find_thresholds("signs", sums, (channels - 5, channels + 5), evaluate)
    count = len(changes)
    assert found.way.tolist() == [Way.RISING] * count + [Way.FALLING] * count + [Way.CONSTANT] * 2
    assert found.threshold.tolist() == [*changes, *(changes - 1), 0, 0]
    assert found.always[-2:].tolist() == [True, False]


def test_what_stays_neither_rises_nor_falls() -> None:
    values = np.array([[3, 1, 2, 1], [2, 1, 2, 3], [2, 1, 3, 2]])
    rises, falls = _directions(values)
    assert rises.tolist() == [False, False, True, True]
    assert falls.tolist() == [True, False, False, True]


def test_what_is_tried_lies_beyond_all_that_float32_may_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where sums of 0.1 are added in any order."""
    made: dict[str, list[np.ndarray]] = {"run": [], "results": [], "errors": []}

    def record(owner: type, name: str, *, is_argument: bool = False) -> None:
        called = getattr(owner, name)

        def recorded(self: object, values: np.ndarray) -> object:
            result = called(self, values)
            made[name].append(values if is_argument else result)
            return result

        monkeypatch.setattr(owner, name, recorded)

    record(Evaluator, "run", is_argument=True)
    record(Product, "results")
    record(Product, "errors")
    net = QonnxNetwork((9,))
    import_model(net.model(net.bipolar(net.linear(net.bipolar("x"), net.signs((4, 9), 0.1)))))
    (results,), errors = made["results"], made["errors"][-1]
    _, low, high = (values.astype(np.float64) for values in made["run"])
    assert errors.all()
    assert (low < results - errors).all()
    assert (high > results + errors).all()


# Sums at which operators of a QONNX chain are looked at: more where numbers change, and only there.

SUMS = np.array([-1000, 0, 1000])


def cut_off(sums: np.ndarray) -> np.ndarray:
    """Rises from 500 to 510, and does not before and after."""
    return np.clip(sums[:, None] - 500, 0, 10).astype(np.float64)


def refined(least: int, greatest: int) -> np.ndarray:
    return _refined(SUMS, (np.array([least]), np.array([greatest])), (-128, 127), cut_off)


def test_sums_are_added_where_numbers_change() -> None:
    found = refined(-1000, 1000)
    assert {-1000, 0, 1000, *range(500, 511)} <= set(found.tolist())
    assert not ((found > -1000) & (found < 0)).any()
    # Parts of parts, not all.
    assert len(found) < 200


def test_sums_that_a_channel_does_not_have_are_left_alone() -> None:
    for least, greatest in ((-1000, 0), (-1000, 999), (1, 1000)):
        assert refined(least, greatest).tolist() == SUMS.tolist()


# Multipliers that give the wanted codes, where the real one does not.


@pytest.mark.parametrize("slope", [0.8, 1.2])
@pytest.mark.parametrize("limits", [(0, -3, 5), (2, -128, 127)])
def test_codes_at_a_limit_do_not_narrow_the_choice(slope: float, limits: tuple[int, int, int]) -> None:
    entering = np.arange(-12, 13)
    codes = np.clip(entering + limits[0], *limits[1:])
    assert not np.array_equal(_requantised(entering, np.float32(slope), limits), codes)
    found = find_multiplier(entering, codes, slope, limits)
    assert found is not None
    np.testing.assert_array_equal(_requantised(entering, found, limits), codes)
