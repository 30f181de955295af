# amaranth: UnusedElaboratable=no
"""DmaStore behind the guard, on AXI memory, against golden.machine.dma."""

from __future__ import annotations

import cocotb
import pytest
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiResp

from cocotb_tests.support.benches.axi import FAILURES, answer_writes
from cocotb_tests.support.benches.dma_bench import Bench, DmaBench, random_load, random_store
from cocotb_tests.support.tiers import SWEPT_PRESETS
from lutterfly.golden import isa
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.units import ErrorCode, Unit


@pytest.mark.regress
@pytest.mark.verilator
@pytest.mark.parametrize("preset", SWEPT_PRESETS)
def test_store(simulate, preset: str) -> None:
    simulate(DmaBench(PRESETS[preset]), env={"PRESET": preset})


@cocotb.test(timeout_time=500, timeout_unit="us")
@cocotb.parametrize(p_stall=[0.0, 0.4], seed=[0, 1])
async def random_commands_match_golden(dut, p_stall: float, seed: int) -> None:
    bench = Bench(dut, seed, p_stall)
    await bench.start()
    for _ in range(2):
        await bench.run([(isa.STORE, random_store(bench.rng, bench.config)) for _ in range(25)])
        bench.compare()


@cocotb.test(timeout_time=500, timeout_unit="us")
async def loads_and_stores_do_not_disturb_each_other(dut) -> None:
    bench = Bench(dut, 2, 0.3)
    await bench.start()
    half = len(bench.memories[LocalMemory.FEATURE]) // 2
    commands = []
    for n in range(12):
        commands.append((isa.STORE, {"row_bytes": 300, "rows": 1, "local": 37 * n, "external": 20_000 + 301 * n}))
        commands.append(
            (
                isa.LOAD,
                {
                    "row_pieces": 1,
                    "rows": 1,
                    "folds": 1,
                    "piece_bytes": 250,
                    "external": 1001 * n,
                    "local": half + 251 * n,
                },
            )
        )
    await bench.run(commands)
    bench.compare()


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize((("external", "local"), [(0, 0), (13, 0), (0, 5), (4093, 3)]))
async def a_contiguous_store_moves_a_beat_each_cycle(dut, external: int, local: int) -> None:
    bench = Bench(dut, 3, 0.0)
    await bench.start()
    beats = 400
    start = bench.cycle
    await bench.run(
        [
            (
                isa.STORE,
                {"row_bytes": beats * bench.config.axi.data_bytes, "rows": 1, "external": external, "local": local},
            )
        ]
    )
    bench.compare()
    taken = bench.done["store"][0] - start
    assert taken <= beats + 60, f"{beats} beats took {taken} cycles"


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(case=[{"row_bytes": 0}, {"rows": 0}])
async def illegal_stores_are_refused(dut, case: dict[str, int]) -> None:
    bench = Bench(dut, 4, 0.0)
    await bench.start()
    good = {"row_bytes": 4, "rows": 1}
    await bench.run([(isa.STORE, good)])
    await bench.run([(isa.STORE, {**good, **case}), (isa.STORE, good)], wait=False)
    assert await bench.until_error() == (ErrorCode.ILLEGAL_FIELD, Unit.STORE, 1, 0)
    await bench.cycles(40)
    bench.compare()
    assert len(bench.done["store"]) == 1


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(
    case=[
        {"row_bytes": 300, "rows": 4, "local": -700, "local_row": 300},
        {"row_bytes": 9, "rows": 3, "local": -8},
        {"row_bytes": 4, "rows": 3, "local": 4, "local_row": -4, "external_row": 7},
    ]
)
async def a_row_out_of_range_stops_after_those_before_it(dut, case: dict[str, int]) -> None:
    bench = Bench(dut, 5, 0.3)
    await bench.start()
    fields = {"external": 77, "external_row": 301, **case}
    await bench.stop_out_of_range(isa.STORE, fields, (isa.STORE, {"row_bytes": 4, "rows": 1}))
    assert not bench.done["store"]


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(row_bytes=[1, 9])
async def a_row_may_end_at_the_last_byte(dut, row_bytes: int) -> None:
    bench = Bench(dut, 9, 0.0)
    await bench.start()
    last = len(bench.memories[LocalMemory.FEATURE]) - row_bytes
    rows = {"row_bytes": row_bytes, "rows": 2, "external": 77, "external_row": row_bytes}
    await bench.run([(isa.STORE, {**rows, "local": last - 1, "local_row": 1})])
    bench.compare()
    await bench.run([(isa.STORE, {**rows, "local": last, "local_row": 1})], wait=False)
    assert await bench.until_error() == (ErrorCode.ADDRESS_RANGE, Unit.STORE, 1, last + 1)


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize((("response", "code"), FAILURES))
async def a_failed_write_stops_the_unit(dut, response: AxiResp, code: ErrorCode) -> None:
    bench = Bench(dut, 6, 0.2)
    await bench.start()
    data_bytes = bench.config.axi.data_bytes
    answer_writes(bench.ram, lambda n: response if n == 3 else AxiResp.OKAY)
    await bench.run(
        [(isa.STORE, {"row_bytes": 32 * data_bytes, "rows": 1, "external": 32 * data_bytes * n}) for n in range(4)],
        wait=False,
    )
    assert await bench.until_error() == (code, Unit.STORE, 1, 48 * data_bytes)
    await bench.cycles(300)
    assert len(bench.errors) == 1
    assert len(bench.done["store"]) == 1
    bench.monitor.check_ended()


@cocotb.test(timeout_time=100, timeout_unit="us")
async def bursts_that_have_begun_end_while_halted(dut) -> None:
    bench = Bench(dut, 7, 0.0)
    await bench.start()
    fields = {"row_bytes": 4000, "rows": 1, "external": 3, "local": 11}
    await bench.run([(isa.STORE, fields)], wait=False)
    await bench.cycles(100)
    dut.halt.value = 1
    await bench.cycles(300)
    begun = len(bench.monitor.requests["aw"])
    assert begun
    bench.monitor.check_ended()
    await bench.cycles(100)
    assert len(bench.monitor.requests["aw"]) == begun
    assert not bench.done["store"]
    dut.halt.value = 0
    bench.execute(isa.STORE, isa.STORE.decode(isa.STORE.encode(**fields)))
    while not bench.done["store"]:
        await RisingEdge(dut.clk)
    bench.compare()


@cocotb.test(timeout_time=500, timeout_unit="us")
async def transfers_are_right_after_a_reset_in_the_middle(dut) -> None:
    bench = Bench(dut, 8, 0.4)
    await bench.start()
    padded = 0
    for round_ in range(12):
        where = slice(1024 * round_, 1024 * round_ + 1024)
        before = bench.external[where].copy()
        fields = {"row_bytes": 1024, "rows": 1, "external": where.start, "local": 64}
        await bench.run([(isa.STORE, fields)], wait=False)
        await bench.cycles(int(bench.rng.integers(1, 250)))
        await bench.soft_reset()
        while bench.monitor.is_writing:
            await RisingEdge(dut.clk)
        await bench.cycles(20)
        # The interrupted command has stored some of its bytes, and no others.
        bench.execute(isa.STORE, isa.STORE.decode(isa.STORE.encode(**fields)))
        stored = bench.arena()[where]
        assert ((stored == before) | (stored == bench.external[where])).all()
        bench.external[where] = stored
        padded += 0 in bench.monitor.strobes
        bench.monitor.strobes.clear()
        bench.done["store"].clear()
        bench.done["load"].clear()
        await bench.run([(isa.STORE, random_store(bench.rng, bench.config)) for _ in range(2)])
        bench.compare()
        await bench.run([(isa.LOAD, random_load(bench.rng, bench.config))])
        bench.compare()
    assert padded, "no reset fell into a burst"
