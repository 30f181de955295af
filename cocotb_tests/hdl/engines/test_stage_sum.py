# amaranth: UnusedElaboratable=no
"""The end of a stage against exact fractions: ties of both kinds, saturation, halving, own values, skips."""

from __future__ import annotations

import os
from fractions import Fraction

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.tiers import sweep
from lutterfly.golden.engines.fpc import ROUND_LATENCY
from lutterfly.golden.numerics.fpc import FRACTION_BITS, VALUE_BITS
from lutterfly.hdl.engines.butterfly import SETTING_LATENCY, StageSum, sum_latency

LANES, TERM_BITS, SKIP_BITS = 2, 24, 17
LEAST, GREATEST = -(1 << VALUE_BITS - 1), (1 << VALUE_BITS - 1) - 1


@pytest.mark.parametrize(
    ("has_own", "skip_bits"),
    sweep(
        [(has_own, skip_bits) for has_own in (False, True) for skip_bits in (0, SKIP_BITS)],
        kept=[(True, SKIP_BITS)],
    ),
)
def test_rounds_and_saturates(simulate, has_own: bool, skip_bits: int) -> None:
    component = StageSum(lanes=LANES, term_bits=TERM_BITS, has_own=has_own, skip_bits=skip_bits)
    simulate(component, env={"OWN": str(int(has_own)), "SKIP": str(skip_bits)})


def expected(term: int, own: int, skipped: int, halves: int) -> int:
    """Rounded once, half to even; what is skipped is added after that."""
    total = Fraction(term + (own << FRACTION_BITS), 1 << FRACTION_BITS + halves)
    return min(max(round(total) + skipped, LEAST), GREATEST)


def packed(values: list[int], bits: int) -> int:
    return sum((value & (1 << bits) - 1) << bits * lane for lane, value in enumerate(values))


def unpacked(word: int) -> list[int]:
    lanes = [word >> VALUE_BITS * lane & (1 << VALUE_BITS) - 1 for lane in range(LANES)]
    return [value - (value >> VALUE_BITS - 1 << VALUE_BITS) for value in lanes]


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(halves=[0, 1])
async def every_rounding(dut, halves: int) -> None:
    has_own, skip_bits = os.environ["OWN"] == "1", int(os.environ["SKIP"])
    rng, latency = np.random.default_rng(5), sum_latency(has_skip=bool(skip_bits))
    half = 1 << FRACTION_BITS - 1 + halves

    def term() -> int:
        """Ties and their neighbours, small and great, and the ends of the range."""
        near = int(rng.integers(-9, 9)) * 2 * half + half + int(rng.integers(-1, 2))
        far = int(rng.integers(-(1 << TERM_BITS - 1), 1 << TERM_BITS - 1))
        edge = int(rng.choice([-(1 << TERM_BITS - 1), (1 << TERM_BITS - 1) - 1]))
        # Sums at the limits of a value, where the rounding decides whether it saturates.
        limit = int(rng.choice([LEAST, GREATEST])) * 2 * half + int(rng.integers(-2 * half, 2 * half + 1))
        return max(min([near, far, edge, limit][rng.integers(4)], (1 << TERM_BITS - 1) - 1), -(1 << TERM_BITS - 1))

    def value(bits: int) -> int:
        return int(
            rng.choice([0, -(1 << bits - 1), (1 << bits - 1) - 1, rng.integers(-(1 << bits - 1), 1 << bits - 1)])
        )

    terms = [[term() for _ in range(LANES)] for _ in range(2000)]
    owns = [[value(VALUE_BITS) if has_own else 0 for _ in range(LANES)] for _ in terms]
    skips = [[value(skip_bits) if skip_bits else 0 for _ in range(LANES)] for _ in terms]
    await start(
        dut, {"terms": 0, "halves": halves, **({"own": 0} if has_own else {}), **({"skipped": 0} if skip_bits else {})}
    )
    for _ in range(SETTING_LATENCY):
        await cycle(dut, {})
    outputs = []
    for number in range(len(terms) + latency):
        inputs = {}
        if number < len(terms):
            inputs["terms"] = packed(terms[number], TERM_BITS)
            if has_own:
                inputs["own"] = packed(owns[number], VALUE_BITS)
        if skip_bits and ROUND_LATENCY <= number < len(terms) + ROUND_LATENCY:
            inputs["skipped"] = packed(skips[number - ROUND_LATENCY], skip_bits)
        outputs += await cycle(dut, inputs, "values")
    wanted = [
        [expected(*one, halves) for one in zip(*of_word, strict=True)]
        for of_word in zip(terms, owns, skips, strict=True)
    ]
    assert [unpacked(word) for word in outputs[latency:]] == wanted
    assert {LEAST, GREATEST} < {value for word in wanted for value in word}
