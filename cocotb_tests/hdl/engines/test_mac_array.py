# amaranth: UnusedElaboratable=no
"""The multiplier array against its golden twins, its chain mode against ONNX Runtime's depthwise convolution."""

from __future__ import annotations

import dataclasses
import os

import cocotb
import numpy as np
import onnxruntime
import pytest
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.benches.streams import pack
from cocotb_tests.support.networks.mixed.configurations import CONFIGS as MIXED
from cocotb_tests.support.tiers import sweep
from lutterfly.golden.engines import DEPTHWISE, ENGINES, MAC, WINOGRAD, XNOR, EngineConfigs
from lutterfly.golden.engines.depthwise import depthwise
from lutterfly.golden.engines.mac import mac
from lutterfly.golden.engines.xnor import agreeing
from lutterfly.golden.numerics.winograd import INPUTS, TAPS
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.engines.engine import SELECT_LATENCY
from lutterfly.hdl.engines.mac_array import MacArray
from lutterfly.hdl.engines.multipliers import weighed_columns
from lutterfly.hdl.parts.device import MULTIPLIER_LATENCY

CONFIGS = {
    "tiny": PRESETS["tiny"],
    "all engines": dataclasses.replace(PRESETS["ecp5-85k"], engines=EngineConfigs.of(*ENGINES.values())),
    # Three chains of two columns, and two columns more.
    "rows": MIXED["rows"],
    # Neighbouring results, and nothing else.
    "pairs": dataclasses.replace(PRESETS["tiny"], engines=EngineConfigs.of(MAC, WINOGRAD)),
    # Of both kinds of words.
    "binary pairs": dataclasses.replace(PRESETS["tiny"], engines=EngineConfigs.of(MAC, XNOR, WINOGRAD)),
}


@pytest.mark.regress
@pytest.mark.verilator
@pytest.mark.parametrize("name", sweep(CONFIGS, kept=("rows",)))
def test_matches_golden(simulate, name: str) -> None:
    simulate(MacArray(CONFIGS[name]), env={"CONFIG": name})


class Bench:
    """Feeds words and weights, each column's as late as the array wants them, and collects results."""

    def __init__(self, dut):
        self.dut = dut
        config = CONFIGS[os.environ["CONFIG"]]
        array = config.array
        component = MacArray(config)
        self.borrowed_columns, self.weighed_columns = component.borrowed_columns, weighed_columns(config)
        self.step_layout, self.selected_layout = (getattr(component, name).shape() for name in ("step", "selected"))
        self.is_binary, self.all_bytes = XNOR in config.engines, (1 << array.lanes) - 1
        self.lanes, self.columns = array.lanes, array.columns
        self.engines, self.waits = config.engines, component.waits
        self.latency = component.latencies[MAC]
        self.times = [time - self.waits.weights for time in component.weight_times or component.hops]
        self.late = [np.zeros((self.columns, self.lanes), np.int8)] * (max(self.times) + self.waits.weights + 1)
        self.results: list[np.ndarray] = []
        self.cycle = 0
        self.result_cycles: list[int] = []

    async def start(self) -> None:
        self.dut.step.value = 0
        self.select(mac=1)
        if self.borrowed_columns:
            self.dut.borrowed_multipliers__factors.value = 0
        if self.weighed_columns:
            self.dut.borrowed_multipliers__weighs.value = 0
        Clock(self.dut.clk, 10, unit="ns").start()
        self.dut.rst.value = 1
        # Registers that say what is selected are not reset.
        for _ in range(1 + SELECT_LATENCY):
            await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0

    def select(self, **engines: int) -> None:
        """Which engine works, if any."""
        self.is_xnor = "xnor" in engines
        self.dut.selected.value = pack(dict.fromkeys(self.selected_layout.members, 0) | engines, self.selected_layout)

    async def feed(self, word: np.ndarray, weights: np.ndarray, step: dict[str, int]) -> None:
        """One cycle; ``weights`` is int8[columns, lanes]."""
        self.late = [weights, *self.late[:-1]]
        skewed = np.stack([self.late[time][column] for column, time in enumerate(self.times)])
        if self.is_binary:
            step = {"keeps": self.all_bytes, "binary": int(self.is_xnor), **step}
        # What this array has no engine for is 0 in all tests that it is not about.
        known = {name: value for name, value in step.items() if name in self.step_layout.members}
        self.dut.step.value = pack(known, self.step_layout)
        self.dut.word.value = int.from_bytes(word.tobytes(), "little")
        self.dut.weights.value = int.from_bytes(skewed.tobytes(), "little")
        await FallingEdge(self.dut.clk)
        result = int(self.dut.result.value) if self.dut.result.value.is_resolvable else 0
        if result & 1:
            self.results.append(np.frombuffer((result >> 1).to_bytes(4 * self.lanes, "little"), np.int32))
            self.result_cycles.append(self.cycle)
        await RisingEdge(self.dut.clk)
        self.cycle += 1

    @property
    def taps(self) -> int:
        return self.engines[DEPTHWISE].taps

    @property
    def chains(self) -> int:
        return self.engines[DEPTHWISE].chains

    def own_fields(self, rows: int, further: int = 0) -> dict[str, dict[str, int]]:
        """What a step says of chains."""
        if DEPTHWISE not in self.engines:
            return {}
        return {"depthwise": {"rows": rows, **({"further": further} if self.chains > 1 else {})}}

    async def drain(self) -> None:
        for _ in range(50):
            await self.feed(
                np.zeros(self.lanes, np.int8),
                np.zeros((self.columns, self.lanes), np.int8),
                {"valid": 0, "clear": 0, "fire": 0, "chain": 0, "fields": self.own_fields(0)},
            )


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.5])
async def sums_over_lanes_and_steps(dut, p_stall: float) -> None:
    rng, bench = np.random.default_rng(3), Bench(dut)
    await bench.start()
    expected, fired = [], []
    for window in range(60):
        steps = int(rng.choice([1, 1, 2, 7]))
        extreme = window < 6
        words = rng.integers(-128, 128, (steps, bench.lanes), dtype=np.int8)
        weights = rng.integers(-128, 128, (steps, bench.columns, bench.lanes), dtype=np.int8)
        if extreme:
            words[:], weights[:] = -128, rng.choice([-128, 127])
        expected.append(mac(words, weights))
        for index in range(steps):
            while rng.random() < p_stall:
                await bench.feed(
                    rng.integers(-128, 128, bench.lanes, dtype=np.int8),
                    weights[0],
                    {"valid": 0, "clear": 1, "fire": 1, "chain": 0, "fields": bench.own_fields(0)},
                )
            step = {
                "valid": 1,
                "clear": index == 0,
                "fire": index == steps - 1,
                "chain": 0,
                "fields": bench.own_fields(0),
            }
            fired.append(bench.cycle)
            await bench.feed(words[index], weights[index], step)
        fired = fired[: len(expected) - 1] + fired[-1:]
    await bench.drain()
    np.testing.assert_array_equal([result[: bench.columns] for result in bench.results], expected)
    latency = MacArray(CONFIGS[os.environ["CONFIG"]]).latencies[MAC]
    assert [cycle - latency for cycle in bench.result_cycles] == fired


def grouped_convolution(image: np.ndarray, kernel: np.ndarray, stride: int) -> np.ndarray:
    """ONNX Runtime's grouped ConvInteger of int8[rows, columns, channels]: int32[rows, columns, channels]."""
    channels = image.shape[2]
    weights = kernel.transpose(2, 0, 1)[:, None]
    node = helper.make_node("ConvInteger", ["x", "w"], ["y"], group=channels, strides=[stride, stride])
    graph = helper.make_graph(
        [node],
        "depthwise",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, channels, *image.shape[:2]])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        [numpy_helper.from_array(np.ascontiguousarray(weights), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    codes = (image.astype(np.int16) + 128).astype(np.uint8).transpose(2, 0, 1)[None]
    # ConvInteger takes unsigned images: take the shift by 128 off again.
    shift = 128 * weights.astype(np.int64).sum((1, 2, 3)).astype(np.int32)
    return session.run(None, {"x": codes})[0][0].transpose(1, 2, 0) - shift


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("taps", [1, 2, 3])
def test_golden_chain_is_a_depthwise_convolution(taps: int, stride: int) -> None:
    rng, rows = np.random.default_rng(7), 3
    image = rng.integers(-128, 128, (9, 12, 4), dtype=np.int8)
    kernel = rng.integers(-128, 128, (rows, taps, 4), dtype=np.int8)
    expected = grouped_convolution(image, kernel, stride)
    band = np.lib.stride_tricks.sliding_window_view(image, rows, axis=0)[::stride]
    # [output rows, columns * rows, channels]: every image column's words, one column after the other.
    words = band.transpose(0, 1, 3, 2).reshape(len(band), -1, 4)
    ends = (np.arange(expected.shape[1]) * stride + taps) * rows - 1
    np.testing.assert_array_equal(depthwise(words, kernel[:, ::-1], ends=ends, count=rows), expected)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.5], stride=[1, 2])
async def chained_columns_make_a_depthwise_convolution(dut, p_stall: float, stride: int) -> None:
    rng, bench = np.random.default_rng(4), Bench(dut)
    await bench.start()
    if DEPTHWISE not in bench.engines:
        return
    rows, taps = 3, bench.taps
    image = rng.integers(-128, 128, (9, 11, bench.lanes), dtype=np.int8)
    kernel = rng.integers(-128, 128, (rows, taps, bench.lanes), dtype=np.int8)
    expected = grouped_convolution(image, kernel, stride)
    for y in range(0, image.shape[0] - rows + 1, stride):
        for x in range(image.shape[1]):
            for row in range(rows):
                weights = np.zeros((bench.columns, bench.lanes), np.int8)
                weights[:taps] = kernel[row, ::-1]
                while rng.random() < p_stall:
                    await bench.feed(
                        image[0, 0],
                        weights,
                        {"valid": 0, "clear": 1, "fire": 1, "chain": 1, "fields": bench.own_fields(rows)},
                    )
                fire = row == rows - 1 and x >= taps - 1 and (x - taps + 1) % stride == 0
                await bench.feed(
                    image[y + row, x],
                    weights,
                    {"valid": 1, "clear": row == 0, "fire": fire, "chain": 1, "fields": bench.own_fields(rows)},
                )
    await bench.drain()
    np.testing.assert_array_equal(bench.results, expected.reshape(-1, bench.lanes))


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.5])
async def chains_side_by_side_have_a_row_each(dut, p_stall: float) -> None:
    """Of the words of an image column each takes its rows; results come in successive cycles."""
    rng, bench = np.random.default_rng(8), Bench(dut)
    await bench.start()
    if DEPTHWISE not in bench.engines:
        return
    taps, kernel_rows, expected, fired = bench.taps, 3, [], []
    latency = MacArray(CONFIGS[os.environ["CONFIG"]]).latencies[DEPTHWISE]
    for results in (*range(1, bench.chains + 1), 1):
        rows = kernel_rows + results - 1
        image = rng.integers(-128, 128, (rows, 7, bench.lanes), dtype=np.int8)
        kernel = rng.integers(-128, 128, (kernel_rows, taps, bench.lanes), dtype=np.int8)
        found = grouped_convolution(image, kernel, 1)
        for x, row in np.ndindex(7, rows):
            weights = rng.integers(-128, 128, (bench.columns, bench.lanes), dtype=np.int8)
            for chain in range(results):
                of_chain = row - chain
                own = kernel[of_chain, ::-1] if 0 <= of_chain < kernel_rows else np.zeros_like(kernel[0])
                weights[chain * taps : (chain + 1) * taps] = own
            while rng.random() < p_stall:
                no_step = {"valid": 0, "clear": 1, "fire": 1, "chain": 1, "fields": bench.own_fields(rows, results - 1)}
                await bench.feed(image[0, 0], weights, no_step)
            fire = row == rows - 1 and x >= taps - 1
            step = {"valid": 1, "clear": row == 0, "fire": fire, "chain": 1}
            if fire:
                expected += list(found[:, x - taps + 1])
                fired += [bench.cycle + latency + result for result in range(results)]
            await bench.feed(image[row, x], weights, step | {"fields": bench.own_fields(rows, results - 1)})
        await bench.drain()
    np.testing.assert_array_equal(bench.results, expected)
    assert bench.result_cycles == fired


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.5])
async def neighbouring_results_are_those_of_a_convolution(dut, p_stall: float) -> None:
    """Three taps on four inputs; the steps of a window come one after the other. Between them, windows of MAC."""
    rng, bench = np.random.default_rng(9), Bench(dut)
    await bench.start()
    if WINOGRAD not in bench.engines:
        return
    expected, fired = [], []
    latency = MacArray(CONFIGS[os.environ["CONFIG"]]).latencies[WINOGRAD]

    async def window(number: int) -> None:
        groups, further = int(rng.choice([1, 1, 2, 5])), int(rng.integers(2))
        inputs = rng.integers(-128, 128, (groups, 4, bench.lanes), dtype=np.int8)
        taps = rng.integers(-128, 128, (groups, 3, bench.columns, bench.lanes), dtype=np.int8)
        if number % 5 == 0:
            inputs, taps = (rng.choice(np.array([-128, 127], np.int8), one.shape) for one in (inputs, taps))
        words = inputs[:, INPUTS].reshape(-1, bench.lanes)
        weights = taps[:, TAPS].reshape(-1, bench.columns, bench.lanes)
        no_step = {"valid": 0, "clear": 1, "fire": 1, "winograd": 1, "fields": {"winograd": {"further": 1}}}
        while rng.random() < p_stall:
            await bench.feed(words[0], weights[0], no_step)
        for index, (word, weight) in enumerate(zip(words, weights, strict=True)):
            step = {"valid": 1, "clear": index == 0, "fire": index == len(words) - 1, "winograd": 1}
            await bench.feed(word, weight, step | {"fields": {"winograd": {"further": further}}})
        for output in range(1 + further):
            each = zip(inputs[:, output : output + 3].astype(np.int32), taps.astype(np.int32), strict=True)
            expected.append(sum(np.einsum("tl,tcl->c", own, kernel) for own, kernel in each))
            fired.append(bench.cycle - 1 + latency + output)

    for _ in range(2):
        bench.select(winograd=1)
        await bench.drain()
        for number in range(40):
            await window(number)
        await bench.drain()
        bench.select(mac=1)
        word, weights = rng.integers(-128, 128, bench.lanes, dtype=np.int8), bench.late[0]
        await bench.feed(word, weights, {"valid": 1, "clear": 1, "fire": 1})
        fired.append(bench.cycle - 1 + bench.latency)
        expected.append(mac(word[None], weights[None]))
        await bench.drain()
    np.testing.assert_array_equal([result[: bench.columns] for result in bench.results], expected)
    assert bench.result_cycles == fired


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.5])
async def counts_bits_that_agree(dut, p_stall: float) -> None:
    """Of the bytes that count; the products of the same words are as before when another engine is selected."""
    rng, bench = np.random.default_rng(6), Bench(dut)
    await bench.start()
    if not bench.is_binary:
        return
    expected = []

    async def window(steps: int, *, is_binary: bool) -> None:
        words = rng.integers(-128, 128, (steps, bench.lanes), dtype=np.int8)
        weights = rng.integers(-128, 128, (steps, bench.columns, bench.lanes), dtype=np.int8)
        if rng.random() < 0.2:
            words[:], weights[:] = rng.choice(np.array([-1, 0], np.int8), 2)
        keeps = rng.choice([bench.all_bytes, int(rng.integers(bench.all_bytes + 1))], steps)
        for index in range(steps):
            while rng.random() < p_stall:
                await bench.feed(words[0], weights[0], {"valid": 0, "clear": 1, "fire": 1})
            step = {"valid": 1, "clear": index == 0, "fire": index == steps - 1}
            await bench.feed(words[index], weights[index], step | ({"keeps": int(keeps[index])} if is_binary else {}))
        if is_binary:
            counted = (keeps[:, None] >> np.arange(bench.lanes) & 1).astype(bool)
            expected.append(agreeing(words, weights, counted))
        else:
            expected.append(mac(words, weights))

    for is_binary in (True, False, True):
        bench.select(**{"xnor" if is_binary else "mac": 1})
        await bench.drain()
        for _ in range(30):
            await window(int(rng.choice([1, 1, 2, 9])), is_binary=is_binary)
        await bench.drain()
    np.testing.assert_array_equal([result[: bench.columns] for result in bench.results], expected)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def multiplies_for_borrowers(dut) -> None:
    """While no engine of the array is selected, products are those of the borrower's factors, whatever the words."""
    rng, bench = np.random.default_rng(5), Bench(dut)
    await bench.start()
    if not bench.borrowed_columns:
        return
    shape = (bench.borrowed_columns, bench.lanes)

    def weights() -> np.ndarray:
        return rng.integers(-128, 128, (bench.columns, bench.lanes), dtype=np.int8)

    async def idle(cycles: int) -> None:
        """Anything but steps, of the mode with delay lines."""
        for _ in range(cycles):
            word = rng.integers(-128, 128, bench.lanes, dtype=np.int8)
            step = {
                "valid": 0,
                "clear": 1,
                "fire": 1,
                "chain": 1,
                "fields": bench.own_fields(int(rng.integers(8))),
            }
            await bench.feed(word, weights(), step)

    async def window() -> np.ndarray:
        words = rng.integers(-128, 128, (3, bench.lanes), dtype=np.int8)
        each = rng.integers(-128, 128, (3, bench.columns, bench.lanes), dtype=np.int8)
        for index in range(3):
            step = {
                "valid": 1,
                "clear": index == 0,
                "fire": index == 2,
                "chain": 0,
                "fields": bench.own_fields(0),
            }
            await bench.feed(words[index], each[index], step)
        return mac(words, each)

    expected = [await window()]
    await bench.drain()
    bench.select()
    await idle(SELECT_LATENCY + bench.columns)
    wanted: list[np.ndarray] = []
    width = 25 if bench.weighed_columns else 24
    for number in range(50):
        factors = rng.integers(-(1 << 15), 1 << 15, shape, dtype=np.int16)
        if number % 5 == 0:
            factors = rng.choice(np.array([-(1 << 15), (1 << 15) - 1], np.int16), shape)
        dut.borrowed_multipliers__factors.value = int.from_bytes(factors.tobytes(), "little")
        # In some cycles the borrower has weights as well, of the first columns.
        weighs = bench.weighed_columns and number % 3 == 0
        own = rng.integers(-255, 256, (bench.weighed_columns, bench.lanes))
        if bench.weighed_columns:
            bits = sum((int(one) & 0x1FF) << 9 * place for place, one in enumerate(own.reshape(-1)))
            dut.borrowed_multipliers__weights.value = bits
            dut.borrowed_multipliers__weighs.value = bench.all_bytes if weighs else 0
        await idle(1)
        late = [time + bench.waits.weights for time in bench.times]
        used = np.stack([bench.late[late[column]][column] for column in range(bench.borrowed_columns)])
        used = used.astype(np.int32)
        used[: len(own) if weighs else 0] = own if weighs else 0
        wanted.append(factors.astype(np.int32) * used)
        if number >= MULTIPLIER_LATENCY:
            bits = int(dut.borrowed_multipliers__products.value)
            lanes = [bits >> width * place & (1 << width) - 1 for place in range(bench.borrowed_columns * bench.lanes)]
            found = np.array([lane - (lane >> width - 1 << width) for lane in lanes], np.int32).reshape(shape)
            np.testing.assert_array_equal(found, wanted[number - MULTIPLIER_LATENCY])
    bench.select(mac=1)
    dut.borrowed_multipliers__factors.value = 0
    if bench.weighed_columns:
        dut.borrowed_multipliers__weighs.value = 0
    await idle(SELECT_LATENCY)
    expected.append(await window())
    await bench.drain()
    np.testing.assert_array_equal([result[: bench.columns] for result in bench.results], expected)
