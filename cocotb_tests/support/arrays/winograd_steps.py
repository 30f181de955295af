"""Steps of an array with WINOGRAD, cycle by cycle: windows of it and of MAC, without gaps between them or with some."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from lutterfly.golden.engines import MAC, WINOGRAD, EngineConfigs
from lutterfly.golden.engines.floorplan import Floorplan
from lutterfly.golden.numerics.winograd import GROUP
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.engines.engine import step_layout
from lutterfly.hdl.engines.winograd import TAP_CONTROL, phased

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
