"""The surroundings of parts of the array: steps with WINOGRAD, and multipliers that are lent."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lutterfly.golden.engines import MAC, WINOGRAD, EngineConfigs
from lutterfly.golden.engines.floorplan import Floorplan
from lutterfly.golden.numerics.fpc import VALUE_BITS
from lutterfly.golden.numerics.winograd import GROUP
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.engines.engine import step_layout
from lutterfly.hdl.engines.winograd import TAP_CONTROL, phased
from lutterfly.hdl.parts.device import MULTIPLIER_LATENCY

CONFIG = dataclasses.replace(PRESETS["tiny"], engines=EngineConfigs.of(MAC, WINOGRAD))
LANES, WAITS = CONFIG.array.lanes, Floorplan.of(CONFIG).waits
STEP = step_layout(CONFIG, (MAC, WINOGRAD), ("chain", "winograd"))
PHASED = phased(STEP)
#: What becomes of the weights of each step of a group.
CONTROLS = (
    {"adds"},
    {"keeps", "adds"},
    {"keeps", "takes"},
    {"takes", "subtracts"},
)

Step = dict[str, Any]


def control_of(step: Step, phase: int) -> dict[str, int]:
    """The bits of the control of a step's weights: none, unless it is a Winograd step."""
    wanted = CONTROLS[phase] if step["valid"] and step["winograd"] else set[str]()
    return {name: int(name in wanted) for name in TAP_CONTROL.members}


def windows(rng: np.random.Generator, count: int, p_gap: float) -> list[list[Step]]:
    """Steps of windows, cycle by cycle, with gaps where there may be some: between windows, groups, and steps of MAC.

    The other bits of a gap are of any value. A window of MAC is far enough from a second result.
    """
    found: list[list[Step]] = []
    for _ in range(count):
        before, is_group, further = found[-1][-1] if found else {}, int(rng.integers(2)), int(rng.integers(2))
        length = GROUP * int(rng.choice([1, 1, 2, 5])) if is_group else int(rng.integers(1, 8))
        chain = 0 if is_group else int(rng.random() < 0.3)
        needs_gap = not is_group and before.get("winograd") and before["fields"]["winograd"]["further"]
        cycles = [_gap(rng)] if needs_gap else []
        for index in range(length):
            while rng.random() < p_gap and not (is_group and index % GROUP):
                cycles.append(_gap(rng))
            ends = {"clear": int(index == 0), "fire": int(index == length - 1)}
            own = {"winograd": is_group, "chain": chain, "fields": {"winograd": {"further": further}}}
            cycles.append({"valid": 1, **ends, **own})
        found.append(cycles)
    return found


def phases(window: list[Step]) -> list[int]:
    """Which step of its group each is; of no meaning to those of MAC, nor in gaps."""
    return [(number - 1) % GROUP for number in itertools.accumulate(step["valid"] for step in window)]


def phased_steps(rng: np.random.Generator, window: list[Step]) -> Iterator[Step]:
    """The steps of a window behind WinogradWords: each of both totals is cleared, other phases are of any value."""
    for number, (step, phase) in enumerate(zip(window, phases(window), strict=True)):
        if step["valid"] and step["winograd"]:
            is_second = number > 0 and bool(window[number - 1]["clear"] and window[number - 1]["valid"])
            yield {**step, "clear": step["clear"] | int(is_second), "phase": phase}
        else:
            yield {**step, "phase": int(rng.integers(GROUP))}


def transformed(window: list[Step], numbers: np.ndarray, transform: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """What becomes of a number of each lane, int8[steps, lanes]: those of each group are transformed, as
    int8[groups, GROUP, lanes], all others stay."""
    made = numbers.astype(np.int32)
    if groups := [number for number, step in enumerate(window) if step["valid"] and step["winograd"]]:
        made[groups] = transform(numbers[groups].reshape(-1, GROUP, LANES)).reshape(-1, LANES)
    return made


def drawn(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Bytes of any value, or the least and the greatest ones alone."""
    extremes = np.array([-128, 127], np.int8)
    return rng.choice(extremes, shape) if rng.random() < 0.3 else rng.integers(-128, 128, shape, dtype=np.int8)


def signed_bits(numbers: np.ndarray, bits: int) -> int:
    """Signed numbers of so many bits, the first one lowest."""
    return sum((int(number) & (1 << bits) - 1) << bits * place for place, number in enumerate(numbers))


def _gap(rng: np.random.Generator) -> Step:
    flags = {name: int(rng.integers(2)) for name in ("clear", "fire", "winograd", "chain")}
    return {"valid": 0, **flags, "fields": {"winograd": {"further": int(rng.integers(2))}}}


# Multipliers of the array that a component under test borrows: products of its factors, some cycles later.

Int8 = npt.NDArray[np.int8]
_PRODUCT_BITS = VALUE_BITS + 8


class BorrowedMultipliers:
    """Multiply factors by weights that belong to words.

    Parameters
    ----------
    lanes : int
    weight_times : sequence of int
        Of each column, cycles from a word to its factors.
    """

    def __init__(self, lanes: int, weight_times: Sequence[int]):
        self.lanes = lanes
        self.weight_times = weight_times
        idle = np.zeros((len(weight_times), lanes), np.int8)
        self._weights = [idle] * (max(weight_times) + 1)
        self._products = [0] * MULTIPLIER_LATENCY

    def products(self, weights: Int8) -> int:
        """The products that a cycle begins with; ``weights``, int8[columns, lanes], are those of its word."""
        self._weights = [weights, *self._weights[:-1]]
        return self._products.pop(0)

    def take(self, factors: int) -> None:
        """The factors of the same cycle, as they come from the component."""
        shape = (len(self.weight_times), self.lanes)
        values = np.frombuffer(factors.to_bytes(VALUE_BITS // 8 * shape[0] * shape[1], "little"), np.int16)
        weights = np.stack([self._weights[time][column] for column, time in enumerate(self.weight_times)])
        products = values.reshape(shape).astype(np.int64) * weights
        bits = ((int(product) & (1 << _PRODUCT_BITS) - 1) for product in products.reshape(-1))
        self._products.append(sum(product << _PRODUCT_BITS * number for number, product in enumerate(bits)))
