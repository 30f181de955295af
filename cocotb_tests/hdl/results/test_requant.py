# amaranth: UnusedElaboratable=no
"""Requantisation: golden against NumPy's float32, the hardware against golden, on edges and a million random cases."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import numpy.typing as npt
import pytest
from amaranth.hdl import Fragment, Module, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator, SimulatorContext
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from lutterfly.golden.engines.add import ENTRY_BITS
from lutterfly.golden.numerics.requant import (
    SUM_BITS,
    SUM_FRACTION_BITS,
    encode_scale,
    pack_parameters,
    requantise,
    requantise_sum,
    unpack_parameters,
)
from lutterfly.hdl.parts.pipeline import GENERIC, Platform, Primitives
from lutterfly.hdl.results.requant import LATENCY, Parameter, Requantiser, Scale

#: Requantisers side by side in the simulation: what Python does once a cycle counts for all.
LANES = 32
SCALE_BITS = Scale.size
RANDOM_CASES = 1_000_000

Cases = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.float32]]


def float_requantise(cases: Cases, zero_point: int, low: int, high: int) -> npt.NDArray[np.int8]:
    """The oracle: float32 arithmetic as ONNX Runtime's kernel does it, step by step."""
    acc, bias, scale = cases
    with np.errstate(over="ignore"):
        value = (acc + bias).astype(np.float32) * scale
    value = np.minimum(np.maximum(value, np.float32(low - zero_point)), np.float32(high - zero_point))
    return (np.rint(value).astype(np.int32) + zero_point).astype(np.int8)


def random_cases(rng: np.random.Generator, count: int) -> Cases:
    """Accumulators, biases and scales of every magnitude; in half of the cases the result is near an int8 code."""

    def integers() -> np.ndarray:
        return (rng.integers(-(2**31), 2**31, count) >> rng.integers(0, 32, count)).astype(np.int32)

    acc, bias = integers(), integers()
    total = np.abs((acc + bias).astype(np.float64))
    near = rng.uniform(-300, 300, count) / np.maximum(total, 1)
    anywhere = np.exp2(rng.uniform(-130, 32, count))
    scale = np.where(rng.random(count) < 0.5, np.abs(near), anywhere).astype(np.float32)
    # Few mantissa bits make ties.
    coarse = rng.random(count) < 0.3
    scale[coarse] = (scale[coarse].view(np.uint32) & 0xFFF0_0000).view(np.float32)
    return acc, bias, scale


def edge_cases() -> Cases:
    """Ties, their neighbours, accumulators that float32 rounds, scales beyond what is encoded, dead channels."""
    scales = [
        0,
        1e-38,
        1e-30,
        2.0**-33,
        2.0**-32,
        1.0000001 * 2.0**-32,
        1.5 * 2.0**-32,
        2.0**-31,
        1e-8,
        2.0**-24,
        2.0**-10,
        1 / 3,
        0.1,
        0.5,
        0.75,
        1,
        1.5,
        2.5,
        127.5,
        255,
        256,
        511.9,
        512,
        513,
        1023,
        1024,
        1025,
        1e9,
        3e38,
    ]
    scales += [np.nextafter(np.float32(scale), np.float32(0)) for scale in (2.0**-32, 0.5, 1, 1024)]
    centres = [0, 2**23, 2**24, 2**25, 2**26, 2**30, 2**31 - 1]
    acc, scale = [], []
    for value in map(np.float32, scales):
        near = [centre + delta for centre in centres for delta in range(-9, 10)]
        if value > 0:
            near += [round(half / float(value)) + delta for half in np.arange(-130, 130) + 0.5 for delta in (-1, 0, 1)]
        near += [-value for value in near]
        near = [x for x in near if -(2**31) <= x < 2**31] + [-(2**31), -(2**31) + 1]
        acc += near
        scale += [value] * len(near)
    acc, scale = np.array(acc, np.int32), np.array(scale, np.float32)
    # The same sums again as the bias alone: dead channels have one of up to 2**30.
    zero = np.zeros_like(acc)
    return np.concatenate([acc, zero]), np.concatenate([zero, acc]), np.concatenate([scale, scale])


def double_ties() -> Cases:
    """Products of 25 significant bits, a tie for float32, of which half round to a tie between integers; and of 26, of
    which half are a tie between integers but for a bit that float32 rounds to."""
    acc, scale = [], []
    for integer in range(256):
        half = (2 * integer + 1) << 25 - (2 * integer + 1).bit_length()
        for product in half - 1, half + 1, 2 * half - 3, 2 * half + 3:
            fraction_bits = round(np.log2(product / (integer + 0.5)))
            divisors = [divisor for divisor in range(5, 1000, 2) if product % divisor == 0]
            acc += divisors
            scale += [product // divisor * 2.0**-fraction_bits for divisor in divisors]
    acc, scale = np.array(acc, np.int32), np.array(scale, np.float32)
    return np.concatenate([acc, -acc]), np.zeros(2 * len(acc), np.int32), np.concatenate([scale, scale])


def under_ties(count: int) -> Cases:
    """Products just below and above a half that float32 rounds to the half."""
    rng = np.random.default_rng(7)
    acc = rng.integers(1, 2**24, count)
    scale = ((rng.integers(0, 256, count) + 0.5) / acc).astype(np.float32)
    scale = (scale.view(np.int32) + rng.integers(-1, 2, count, dtype=np.int32)).view(np.float32)
    return (acc * rng.choice([-1, 1], count)).astype(np.int32), np.zeros(count, np.int32), scale


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("zero_point", "low", "high"),
    [
        (0, -128, 127),
        (-128, -128, 127),
        (127, -128, 127),
        (-5, -5, 90),
        (3, 3, 3),
    ],
)
def test_golden_is_float32(seed: int, zero_point: int, low: int, high: int) -> None:
    rng = np.random.default_rng(seed)
    for cases in (edge_cases(), double_ties(), under_ties(10_000), random_cases(rng, RANDOM_CASES // 20)):
        acc, *channels = cases
        result = requantise(acc, pack_parameters(*channels), zero_point, low, high)
        np.testing.assert_array_equal(result, float_requantise(cases, zero_point, low, high))


def test_under_ties_become_ties() -> None:
    """The cases that a single rounding would get wrong are among those above."""
    acc, _, scale = under_ties(10_000)
    once = np.rint(acc.astype(np.float64) * scale)
    assert (once != np.rint(acc.astype(np.float32) * scale)).sum() > 100


def test_leading_axes_broadcast() -> None:
    acc, bias, scale = random_cases(np.random.default_rng(0), 24)
    parameters = pack_parameters(bias[:4], scale[:4])
    together = requantise(acc.reshape(2, 3, 4), parameters, 0)
    assert together.shape == (2, 3, 4)
    for pixel, row in zip(together.reshape(6, 4), acc.reshape(6, 4), strict=True):
        np.testing.assert_array_equal(pixel, requantise(row, parameters, 0))


def test_encoding() -> None:
    scale = np.array([1, 0.1, 2.0**-32, 1e-10, 512, 2000, 0], np.float32)
    mantissa, exponent = encode_scale(scale)
    np.testing.assert_array_equal(mantissa[:3] * 2.0 ** -exponent[:3], scale[:3])
    assert list(zip(mantissa[3:], exponent[3:], strict=True)) == [(0, 0), (2**23, 14), (2**23, 14), (0, 0)]
    bias = np.array([-1, 2, -(2**31), 3, 4, 5, 6], np.int32)
    words = pack_parameters(bias, scale)
    for got, expected in zip(unpack_parameters(words), (bias, mantissa, exponent), strict=True):
        np.testing.assert_array_equal(got, expected)
    assert int(words[0]) == 0xFFFF_FFFF | 1 << 55 | 23 << 56
    assert Parameter.from_bits(int(words[2]))["scale"]["mantissa"] == mantissa[2]


def test_the_longest_sums_are_float32() -> None:
    """The ends of what a sum of Add tables may be, and what float32 rounds on the way."""
    limit = 1 << SUM_BITS - 1
    ends = [
        0,
        limit - 1,
        limit - (1 << 12) - 1,
        limit - (1 << 11),
        *(3 * (1 << bit) + delta for bit in (23, 30) for delta in (-1, 0, 1)),
    ]
    total = np.array([*ends, *(-1 - end for end in ends)])
    for power in (-32, -31, -25, -24, -10, 0, 8):
        scale = np.full(len(total), 2.0**power, np.float32)
        value = (total.astype(np.float32) * np.float32(2.0**-SUM_FRACTION_BITS)) * scale
        expected = np.clip(np.rint(value) + 3, -100, 90)
        found = requantise_sum(total, pack_parameters(np.zeros(len(total), np.int32), scale), 3, -100, 90)
        np.testing.assert_array_equal(found, expected)


ONE, ACC, WORD = np.ones(1, np.float32), np.zeros(1, np.int32), np.zeros(1, np.uint64)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: encode_scale(np.ones(1)), TypeError, r"^multiplier must be float32, not float64$"),
        (lambda: encode_scale(-ONE), ValueError, r"^multiplier must be finite and not negative, not -1\.0$"),
        (
            lambda: encode_scale(ONE / np.float32(0)),
            ValueError,
            r"^multiplier must be finite and not negative, not inf$",
        ),
        (lambda: pack_parameters(np.zeros(1), ONE), TypeError, r"^bias must be int32, not float64$"),
        (
            lambda: pack_parameters(np.zeros(2, np.int32), ONE),
            ValueError,
            r"^bias must have the shape of multiplier \(1,\), not \(2,\)$",
        ),
        (lambda: requantise(ONE, WORD, 0), TypeError, r"^acc must be int32, not float32$"),
        (lambda: requantise(ACC, ONE, 0), TypeError, r"^parameters must be uint64, not float32$"),
        (lambda: requantise(ACC, WORD, 128), ValueError, r"^zero_point must be between -128 and 127, not 128$"),
        (lambda: requantise(ACC, WORD, -129), ValueError, r"^zero_point must be between -128 and 127, not -129$"),
        (lambda: requantise(ACC, WORD, 0, -129), ValueError, r"^low must be between -128 and 127, not -129$"),
        (lambda: requantise(ACC, WORD, 0, 0, 128), ValueError, r"^high must be between -128 and 127, not 128$"),
        (lambda: requantise(ACC, WORD, 0, 1, 0), ValueError, r"^low must be at most high \(0\), not 1$"),
        (lambda: requantise_sum(ACC, WORD, 0), TypeError, r"^total must be int64, not int32$"),
        (lambda: requantise_sum(ACC.astype(np.int64), WORD, 128), ValueError, r"^zero_point must be between -128 and "),
        (lambda: unpack_parameters(ACC), TypeError, r"^parameters must be uint64, not int32$"),
        (
            lambda: requantise_sum(np.array([0, 1 << SUM_BITS - 1]), WORD, 0),
            ValueError,
            r"^total must be between -68719476736 and 68719476735, not 68719476736$",
        ),
        (
            lambda: requantise_sum(np.array([0, -1 - (1 << SUM_BITS - 1)]), WORD, 0),
            ValueError,
            r"^total must be between -68719476736 and 68719476735, not 68719476737$",
        ),
    ],
)
def test_refusals(call, error: type[Exception], message: str) -> None:
    with np.errstate(divide="ignore"), pytest.raises(error, match=message):
        call()


class Wide(Primitives):
    """A family whose multipliers take whole factors; they are built of the generic body here."""

    widest_factor = 24


#: By whether a multiplier takes whole factors.
PLATFORMS = {False: GENERIC, True: Platform(primitives=Wide())}


class Bench(wiring.Component):
    """``LANES`` requantisers side by side."""

    def __init__(self, *, is_whole: bool):
        self.is_whole = is_whole
        code = In(signed(8))
        super().__init__(
            {
                "addends": In(2 * SUM_BITS * LANES),
                "scale": In(SCALE_BITS * LANES),
                "zero_point": code,
                "low": code,
                "high": code,
                "result": Out(8 * LANES),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        for lane in range(LANES):
            unit = Requantiser()
            m.submodules[f"lane_{lane}"] = Fragment.get(unit, PLATFORMS[self.is_whole])
            m.d.comb += [
                unit.addends.eq(self.addends.word_select(lane, 2 * SUM_BITS)),
                unit.scale.eq(self.scale.word_select(lane, SCALE_BITS)),
                unit.zero_point.eq(self.zero_point),
                unit.low.eq(self.low),
                unit.high.eq(self.high),
                self.result.word_select(lane, 8).eq(unit.result),
            ]
        return m


@pytest.mark.regress
@pytest.mark.verilator
@pytest.mark.parametrize("is_whole", PLATFORMS, ids=["divided factors", "whole factors"])
def test_hardware_is_golden(simulate, is_whole: bool) -> None:
    simulate(Bench(is_whole=is_whole))


@pytest.mark.parametrize("is_whole", PLATFORMS, ids=["divided factors", "whole factors"])
def test_some_cases_in_hardware(is_whole: bool) -> None:
    """Quick: the factors' product is divided or not."""
    count, unit = 400, Requantiser()
    acc, bias, scale = random_cases(np.random.default_rng(5), count)
    scales = pack_parameters(bias, scale) >> np.uint64(32) & np.uint64((1 << SCALE_BITS) - 1)
    found: list[int] = []

    async def bench(context: SimulatorContext) -> None:
        context.set(unit.low, -128)
        context.set(unit.high, 127)
        for cycle in range(count + LATENCY):
            if cycle < count:
                for place, term in enumerate((acc[cycle], bias[cycle])):
                    context.set(unit.addends[place], int(term) << SUM_FRACTION_BITS)
                context.set(Value.cast(unit.scale), int(scales[cycle]))
            await context.tick()
            found.append(context.get(unit.result))

    simulator = Simulator(Fragment.get(unit, PLATFORMS[is_whole]))
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    expected = requantise(acc, pack_parameters(bias, scale), 0)
    assert len(set(expected.tolist())) > 50
    assert found[LATENCY - 1 : LATENCY - 1 + count] == expected.tolist()


def joined(values: np.ndarray, bits: int) -> int:
    """Values side by side, the first lowest, of so many bits each."""
    planes = (values[:, None].astype(np.int64) >> np.arange(bits) & 1).astype(np.uint8)
    return int.from_bytes(np.packbits(planes.reshape(-1), bitorder="little").tobytes(), "little")


async def compare(dut, cases: Cases, rng: np.random.Generator) -> None:
    """Feed one case to each lane in every cycle, with other zero points and limits in each."""
    acc, bias, scale = (array[: len(array) // LANES * LANES].reshape(-1, LANES) for array in cases)
    parameters = pack_parameters(bias, scale)
    expect = [lambda *limits, row=row: requantise(*row, *limits) for row in zip(acc, parameters, strict=True)]
    addends = np.stack([acc, bias], 2).astype(np.int64) << SUM_FRACTION_BITS
    await compare_addends(dut, addends, parameters, expect, rng)


async def compare_addends(dut, addends: np.ndarray, parameters: np.ndarray, expect: list, rng) -> None:
    """Terms int64[cycles, LANES, 2]; ``expect`` gives the results of a cycle for its zero point and limits."""
    cycles = len(addends)
    zero_points = rng.integers(-128, 128, cycles)
    limits = np.sort(rng.integers(-128, 128, (cycles, 2)), axis=1)
    limits[rng.random(cycles) < 0.8] = -128, 127
    expected = np.stack([row(*codes) for row, *codes in zip(expect, zero_points, *limits.T, strict=True)])
    scales = parameters >> np.uint64(32) & np.uint64((1 << SCALE_BITS) - 1)

    async def drive() -> None:
        words = zip(addends.reshape(cycles, -1), scales, zero_points.tolist(), limits.tolist(), strict=True)
        for addends_row, scale_row, zero_point, (low, high) in words:
            dut.addends.value = joined(addends_row, SUM_BITS)
            dut.scale.value = joined(scale_row, SCALE_BITS)
            dut.zero_point.value, dut.low.value, dut.high.value = zero_point, low, high
            await FallingEdge(dut.clk)

    cocotb.start_soon(drive())
    for _ in range(LATENCY):
        await FallingEdge(dut.clk)
    results = bytearray()
    for _ in range(cycles):
        results += dut.result.value.to_unsigned().to_bytes(LANES, "little")
        await FallingEdge(dut.clk)
    np.testing.assert_array_equal(np.frombuffer(results, np.int8).reshape(cycles, LANES), expected)


async def start(dut) -> None:
    Clock(dut.clk, 10, unit="ns").start()
    dut.rst.value = 0
    await FallingEdge(dut.clk)


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def edges(dut) -> None:
    await start(dut)
    rng = np.random.default_rng(0)
    for cases in (edge_cases(), double_ties(), under_ties(20_000)):
        order = rng.permutation(len(cases[0]))
        await compare(dut, tuple(array[order] for array in cases), rng)


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def random(dut) -> None:
    await start(dut)
    rng = np.random.default_rng(int(os.environ.get("RANDOM_SEED", "1")))
    await compare(dut, random_cases(rng, RANDOM_CASES), rng)


def sums(rng: np.random.Generator, count: int) -> np.ndarray:
    """Pairs of Add table entries, int64[count, 2]: of every magnitude, and such that the sum is near a tie."""
    limit = 1 << ENTRY_BITS - 1
    addends = rng.integers(-limit, limit, (count, 2)) >> rng.integers(0, ENTRY_BITS, (count, 2))
    near = count // 2
    codes = rng.integers(-140, 140, near) * 2 + 1
    ties = (codes << ADD_FRACTION - 1) + rng.integers(-40, 41, near)
    addends[:near, 0] = ties - addends[:near, 1] // 2
    addends[:near, 1] //= 2
    return np.clip(addends, -limit, limit - 1)


#: Of the entries, in the tests.
ADD_FRACTION = 26
ADD_SCALE = 2.0 ** (SUM_FRACTION_BITS - ADD_FRACTION)


def test_golden_sum_is_float32() -> None:
    addends = sums(np.random.default_rng(3), 200_000)
    total = addends.sum(1)
    parameters = pack_parameters(np.full(1, 77, np.int32), np.full(1, ADD_SCALE, np.float32))
    value = total.astype(np.float32) * np.float32(2.0**-ADD_FRACTION)
    once = np.rint(total * 2.0**-ADD_FRACTION)
    assert (np.rint(value) != once).sum() > 1000, "the cases that a single rounding would get wrong are among them"
    expected = np.clip(np.rint(value) + 3, -100, 90).astype(np.int8)
    np.testing.assert_array_equal(requantise_sum(total[:, None], parameters, 3, -100, 90)[:, 0], expected)


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def sums_of_add_tables(dut) -> None:
    await start(dut)
    rng = np.random.default_rng(4)
    addends = sums(rng, 2000 * LANES).reshape(-1, LANES, 2)
    parameters = pack_parameters(
        rng.integers(-(2**31), 2**31, addends.shape[:2]).astype(np.int32),
        np.full(addends.shape[:2], ADD_SCALE, np.float32),
    )
    rows = zip(addends.sum(2), parameters, strict=True)
    expect = [lambda *limits, row=row: requantise_sum(*row, *limits) for row in rows]
    await compare_addends(dut, addends, parameters, expect, rng)
