# amaranth: UnusedElaboratable=no
"""DmaLoad behind the guard, on AXI memory, against golden.machine.dma."""

from __future__ import annotations

import cocotb
import pytest
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiResp

from cocotb_tests.support.benches.axi import FAILURES, answer_reads
from cocotb_tests.support.benches.dma_bench import (
    BASE,
    GOOD_LOAD,
    ILLEGAL_LOADS,
    ONE_RUN,
    Bench,
    DmaBench,
    random_fill,
    random_load,
)
from cocotb_tests.support.tiers import SWEPT_PRESETS
from lutterfly.golden import isa
from lutterfly.golden.engines import ADD, FPC
from lutterfly.golden.memories import SHARED_MEMORIES, LocalMemory
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.units import ErrorCode, Unit


@pytest.mark.regress
@pytest.mark.verilator
@pytest.mark.parametrize("preset", SWEPT_PRESETS)
def test_load_and_fill(simulate, preset: str) -> None:
    simulate(DmaBench(PRESETS[preset]), env={"PRESET": preset})


@cocotb.test(timeout_time=500, timeout_unit="us")
@cocotb.parametrize(p_stall=[0.0, 0.4], seed=[0, 1])
async def random_commands_match_golden(dut, p_stall: float, seed: int) -> None:
    bench = Bench(dut, seed, p_stall)
    await bench.start()
    for _ in range(2):
        await bench.run(
            [
                (isa.LOAD, random_load(bench.rng, bench.config))
                if bench.rng.random() < 0.75
                else (isa.FILL, random_fill(bench.rng, bench.config))
                for _ in range(30)
            ]
        )
        bench.compare()


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(memory=[*SHARED_MEMORIES, ADD.memory, FPC.memory])
async def every_memory_is_filled_to_its_last_byte(dut, memory: LocalMemory) -> None:
    bench = Bench(dut, 2, 0.0)
    await bench.start()
    size = min(bench.config.size_bytes(memory) or 512, 512)
    place = {"external": 4093, "local": max(bench.config.size_bytes(memory) - size, 0)}
    load = {**ONE_RUN, **place, "memory": memory, "piece_bytes": size}
    if memory in bench.memories:
        await bench.run([(isa.LOAD, load)])
    else:
        await bench.run([(isa.LOAD, load)], wait=False)
        assert await bench.until_error() == (ErrorCode.ILLEGAL_FIELD, Unit.LOAD, 0, 0)
        await bench.cycles(60)
    bench.compare()


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize((("external", "local"), [(0, 0), (13, 0), (0, 5), (4099, 3)]))
async def a_contiguous_load_moves_a_beat_each_cycle(dut, external: int, local: int) -> None:
    bench = Bench(dut, 3, 0.0)
    bench.use_ideal_bus()
    await bench.start()
    data_bytes = bench.config.axi.data_bytes
    beats = 400
    start = bench.cycle
    await bench.run([(isa.LOAD, {**ONE_RUN, "piece_bytes": beats * data_bytes, "external": external, "local": local})])
    taken = bench.done["load"][0] - start
    bench.compare()
    assert taken <= beats + bench.bus_latency + 30, f"{beats} beats took {taken} cycles"


@cocotb.test(timeout_time=100, timeout_unit="us")
async def short_loads_overlap(dut) -> None:
    bench = Bench(dut, 4, 0.0)
    bench.use_ideal_bus()
    await bench.start()
    data_bytes = bench.config.axi.data_bytes
    loads = [
        (isa.LOAD, {**ONE_RUN, "piece_bytes": 12 * data_bytes, "external": 16 * data_bytes * n, "local": 256 * n})
        for n in range(16)
    ]
    start = bench.cycle
    await bench.run(loads)
    taken = bench.done["load"][-1] - start
    bench.compare()
    assert bench.monitor.most_outstanding > 1
    assert taken <= 16 * 12 + bench.bus_latency + 40, f"16 bursts of 12 beats took {taken} cycles"


@cocotb.test(timeout_time=100, timeout_unit="us")
async def folded_rows_write_a_piece_each_cycle(dut) -> None:
    bench = Bench(dut, 5, 0.0)
    bench.use_ideal_bus()
    await bench.start()
    fields = {
        "row_pieces": 32,
        "piece_bytes": 3,
        "rows": 4,
        "folds": 3,
        "external_row": 96,
        "external_fold": 96,
        "local_row": 512,
        "local_fold": 3,
        "local_piece": 9,
        "external": 5,
    }
    start = bench.cycle
    await bench.run([(isa.LOAD, fields)])
    bench.compare()
    taken = bench.done["load"][0] - start
    # A run may end in two beats with its last piece: one cycle more each.
    assert taken <= 32 * 4 * 3 + 12 + bench.bus_latency + 40, f"384 pieces took {taken} cycles"


@cocotb.test(timeout_time=100, timeout_unit="us")
async def a_fill_writes_lanes_bytes_each_cycle(dut) -> None:
    bench = Bench(dut, 6, 0.0)
    await bench.start()
    size = 100 * bench.config.array.lanes
    start = bench.cycle
    await bench.run([(isa.FILL, {"piece_bytes": size, "rows": 2, "local_row": size + 3, "local": 1, "value": 0x5A})])
    bench.compare()
    taken = bench.done["load"][0] - start
    assert taken <= 200 + 20, f"200 chunks took {taken} cycles"


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(case=ILLEGAL_LOADS)
async def illegal_loads_are_refused(dut, case: dict[str, int]) -> None:
    bench = Bench(dut, 7, 0.0)
    await bench.start()
    await bench.run([(isa.LOAD, GOOD_LOAD)])
    await bench.run([(isa.LOAD, {**GOOD_LOAD, **case})], wait=False)
    assert await bench.until_error() == (ErrorCode.ILLEGAL_FIELD, Unit.LOAD, 1, 0)
    await bench.cycles(60)
    bench.compare()
    assert len(bench.done["load"]) == 1
    assert len(bench.errors) == 1


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(case=[{"piece_bytes": 0}, {"rows": 0}])
async def illegal_fills_are_refused(dut, case: dict[str, int]) -> None:
    bench = Bench(dut, 8, 0.0)
    await bench.start()
    await bench.run([(isa.FILL, {"piece_bytes": 4, "rows": 1, **case})], wait=False)
    assert await bench.until_error() == (ErrorCode.ILLEGAL_FIELD, Unit.FILL, 0, 0)
    await bench.cycles(20)
    bench.compare()


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(
    (
        ("fmt", "case"),
        [
            (isa.LOAD, {"row_pieces": 6, "piece_bytes": 10, "local_piece": 12, "local": -40}),
            (isa.LOAD, {"piece_bytes": 65, "local": -64}),
            (isa.LOAD, {"rows": 3, "piece_bytes": 4, "local": 4, "local_row": -4}),
            (isa.LOAD, {"memory": LocalMemory.WEIGHT, "piece_bytes": 256, "local": -128}),
            (isa.LOAD, {"memory": LocalMemory.TABLE, "piece_bytes": 5, "local": -4}),
            (isa.LOAD, {"memory": LocalMemory.LIST, "piece_bytes": 8, "local": -4}),
            (isa.LOAD, {"memory": LocalMemory.PARAMETER, "piece_bytes": 16, "local": -8}),
            (isa.FILL, {"piece_bytes": 10, "rows": 4, "local_row": 13, "local": -40}),
        ],
    )
)
async def a_piece_out_of_range_stops_after_those_before_it(dut, fmt: isa.Format, case: dict[str, int]) -> None:
    bench = Bench(dut, 9, 0.3)
    await bench.start()
    fields = {**(GOOD_LOAD if fmt is isa.LOAD else {}), **case}
    # A unit that is cut in the middle is not written, so only the order of pieces can tell.
    await bench.stop_out_of_range(fmt, fields, (isa.LOAD, GOOD_LOAD))
    assert not bench.done["load"]


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize((("response", "code"), FAILURES))
async def a_failed_read_stops_the_unit(dut, response: AxiResp, code: ErrorCode) -> None:
    bench = Bench(dut, 10, 0.2)
    await bench.start()
    data_bytes = bench.config.axi.data_bytes
    answer_reads(bench.ram, lambda address: response if address - BASE == 40 * data_bytes else AxiResp.OKAY)
    loads = [
        (isa.LOAD, {**ONE_RUN, "piece_bytes": 16 * data_bytes, "external": 16 * data_bytes * n, "local": 1000})
        for n in range(4)
    ]
    await bench.run(loads, wait=False)
    assert await bench.until_error() == (code, Unit.LOAD, 2, 32 * data_bytes)
    await bench.cycles(200)
    assert len(bench.errors) == 1
    assert len(bench.done["load"]) <= 2


@cocotb.test(timeout_time=100, timeout_unit="us")
async def nothing_begins_when_halted(dut) -> None:
    bench = Bench(dut, 11, 0.0)
    await bench.start()
    fields = {**ONE_RUN, "piece_bytes": 4000, "external": 3, "local": 11}
    await bench.run([(isa.LOAD, fields)], wait=False)
    await bench.cycles(100)
    dut.halt.value = 1
    await bench.cycles(60)
    before = {memory: array.copy() for memory, array in bench.memories.items()}
    requests = 0
    for _ in range(60):
        await RisingEdge(dut.clk)
        requests += int(dut.memory__arvalid.value)
    assert requests == 0
    assert all((before[memory] == bench.memories[memory]).all() for memory in bench.memories)
    assert not bench.done["load"]


@cocotb.test(timeout_time=500, timeout_unit="us")
@cocotb.parametrize(delay=[0, 300])
async def loads_are_right_after_a_reset_in_the_middle(dut, delay: int) -> None:
    """``delay`` cycles pass before the old answers come: beside the new ones, or all before."""
    bench = Bench(dut, 12, 0.3)
    await bench.start()
    for round_ in range(10):
        await bench.run(
            [(isa.LOAD, {**ONE_RUN, "piece_bytes": 2000, "external": 100 * round_, "local": 0})], wait=False
        )
        await bench.cycles(int(bench.rng.integers(1, 150)))
        bench.hold_reads(delay)
        await bench.soft_reset()
        # The interrupted command has written some of its bytes.
        bench.expected[LocalMemory.FEATURE][:2000] = bench.memories[LocalMemory.FEATURE][:2000]
        bench.done["load"].clear()
        await bench.run([(isa.LOAD, random_load(bench.rng, bench.config)) for _ in range(3)])
        bench.compare()
