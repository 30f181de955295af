# amaranth: UnusedElaboratable=no
"""Sums and differences of the words of Winograd steps, and all other words as they are; what must be neighbours."""

from __future__ import annotations

import cocotb
import numpy as np
import pytest
from amaranth.sim import Simulator, SimulatorContext

from cocotb_tests.support.benches.array_bench import (
    LANES,
    PHASED,
    STEP,
    WAITS,
    control_of,
    drawn,
    phased_steps,
    phases,
    signed_bits,
    transformed,
    windows,
)
from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.streams import pack, unpack
from lutterfly.golden.numerics.winograd import GROUP, WORD_BITS, transform_inputs
from lutterfly.hdl.engines.winograd import TAP_CONTROL, WinogradWords
from lutterfly.hdl.parts.pipeline import ASSERTED


def test_factors_of_words(simulate) -> None:
    simulate(WinogradWords(lanes=LANES, step=STEP))


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_gap=[0.0, 0.4])
async def every_word(dut, p_gap: float) -> None:
    """Of each step, so many cycles later: the step itself, its word, and a cycle earlier the control of its weights."""
    rng = np.random.default_rng(11)
    inputs, expected = [], []
    for window in windows(rng, 120, p_gap):
        words = drawn(rng, len(window), LANES)
        factors = transformed(window, words, transform_inputs)
        inputs += zip(window, words, strict=True)
        expected += zip(phased_steps(rng, window), factors, phases(window), strict=True)
    # The least and the greatest factors are among them.
    every = np.stack([factors for _, factors, _ in expected])
    assert (every.min(), every.max()) == (-256, 255)
    await start(dut, {"step": 0, "word": 0})
    outputs = []
    for step, word in [*inputs, *inputs[: WAITS.words]]:
        given = {"step": pack(step, STEP), "word": signed_bits(word, 8)}
        outputs.append(await cycle(dut, given, "next_step", "next_word", "control"))
    for number, (step, factors, phase) in enumerate(expected):
        (found, word, _), (_, _, control) = outputs[number + WAITS.words], outputs[number + WAITS.words - WAITS.weights]
        found = unpack(found, PHASED)
        assert unpack(control, TAP_CONTROL) == control_of(step, phase), number
        assert found["valid"] == step["valid"], number
        if step["valid"]:
            # The phase of another engine's step has no meaning.
            assert found == (step if step["winograd"] else step | {"phase": found["phase"]}), number
        if step["valid"] or not step["winograd"]:
            assert word == signed_bits(factors, WORD_BITS), number


def fed(steps: list[tuple[int, int, int]]) -> None:
    """Simulate steps with ``valid``, ``clear`` and ``winograd``."""
    component = WinogradWords(lanes=LANES, step=STEP)
    simulator = Simulator(component.elaborate(ASSERTED))
    simulator.add_clock(1e-6)

    async def bench(context: SimulatorContext) -> None:
        for valid, clear, winograd in [(0, 0, 0), *steps, (0, 0, 0)]:
            context.set(component.step, {"valid": valid, "clear": clear, "winograd": winograd})
            await context.tick()

    simulator.add_testbench(bench)
    simulator.run()


def two_groups(place: int, others: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The steps of a window of two groups, with others in front of one."""
    steps = [(1, int(number == 0), 1) for number in range(2 * GROUP)]
    return [*steps[:place], *others, *steps[place:]]


@pytest.mark.parametrize("place", range(2 * GROUP))
def test_the_steps_of_a_group_must_come_in_successive_cycles(place: int) -> None:
    for gap in ([(0, 0, 0)], [(0, 1, 1)], [(0, 0, 1)] * 5):
        steps = two_groups(place, gap)
        if place % GROUP:
            with pytest.raises(AssertionError, match="WINOGRAD: a step that does not follow those of its group"):
                fed(steps)
        else:
            # Between groups there may be gaps.
            fed(steps)


def test_a_step_of_another_engine_is_none_of_a_group() -> None:
    with pytest.raises(AssertionError, match="WINOGRAD: a step that does not follow those of its group"):
        fed([(1, 1, 1), (1, 0, 0), (1, 0, 1)])
    # As their own windows they may come as they like.
    fed([(1, 1, 0), (0, 1, 1), (1, 0, 0), *two_groups(0, []), (1, 1, 0), *two_groups(0, [])])
