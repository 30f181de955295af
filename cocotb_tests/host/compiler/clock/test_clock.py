"""The parts of the clock, each against what it stands for counted cycle by cycle."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.engines import find_memory
from lutterfly.golden.isa import Load, Opcode, Store
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.timing.latencies import RESULT_WINDOWS, chunk_cycles, fill_cycles
from lutterfly.golden.timing.overheads import OVERHEADS
from lutterfly.golden.units import Queue
from lutterfly.host.compiler import plan_graph
from lutterfly.host.compiler.clock.buses import Agenda, Barriers, Events, MemoryPort, Process, ReadBus, Rounds, Signal
from lutterfly.host.compiler.clock.core import CoreClock, CoreContext, Part, hide
from lutterfly.host.compiler.clock.dma import LoadClock, LoadRun, StoreClock, runs
from lutterfly.host.compiler.operation import Command
from lutterfly.host.graph import Window


def random_rounds(rng: np.random.Generator, begin: int) -> tuple[Rounds, set[int]]:
    """Rounds, and the cycles that they take."""
    period, count = (int(number) for number in rng.integers(1, 8, 2))
    taken = rng.random(period) < 0.5
    runs = tuple((int(offset), 1) for offset in np.flatnonzero(taken))
    cycles = {begin + number * period + offset for number in range(count) for offset, _ in runs}
    return Rounds(begin, period, count, runs), cycles


@pytest.mark.parametrize("seed", range(50))
def test_a_port_finds_the_free_cycles(seed: int) -> None:
    rng = np.random.default_rng(seed)
    port, taken, end = MemoryPort(), set(), 0
    for _ in range(int(rng.integers(0, 5))):
        rounds, cycles = random_rounds(rng, end + int(rng.integers(0, 5)))
        end, taken = rounds.begin + rounds.period * rounds.count, taken | cycles
        port.take(end, lambda rounds=rounds: [rounds])
    for _ in range(20):
        begin, count = int(rng.integers(0, 60)), int(rng.integers(1, 40))
        free = [cycle for cycle in range(begin, begin + count + len(taken)) if cycle not in taken]
        assert port.after(begin, count) == free[count - 1] + 1


def cycles_of(rounds: list[Rounds]) -> list[int]:
    return [
        entry.begin + number * entry.period + offset + cycle
        for entry in rounds
        for number in range(entry.count)
        for offset, length in entry.runs
        for cycle in range(length)
    ]


@pytest.mark.parametrize("seed", range(50))
def test_windows_take_the_cycles_of_their_steps_and_pieces(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rounds, slots, latency = int(rng.integers(1, 20)), int(rng.integers(1, 4)), 40
    windows = [(int(n), int(rng.integers(1, 6))) for n in rng.integers(1, 6, rng.integers(1, 5))]
    limit = int(rng.integers(4, RESULT_WINDOWS))
    pieces = [
        [group for group in range(groups) if (group + 1) % slots == 0 or group == groups - 1] for _, groups in windows
    ]
    part = Part(100, 0, windows, rounds, False, 0, limit, False, 0, pieces, latency)
    reads, writes, cycle, backlog, served = [], [], 100, 0, 0
    for steps, groups in windows * rounds:
        for step in range(steps):
            while step == steps - 1 and backlog > limit:
                backlog, cycle = backlog - 1, cycle + 1
            reads.append(cycle)
            backlog, cycle = max(backlog - 1, 0), cycle + 1
        backlog += groups
        # The groups of a window come one after the other, after those of the windows before.
        first = max(reads[-1] + latency, served)
        served = first + groups
        writes += [first + group for group in range(groups) if (group + 1) % slots == 0 or group == groups - 1]
    assert cycles_of(list(part.reads())) == reads
    assert cycles_of(list(part.writes())) == writes
    latest: list[int] = []
    for begin, count, issued, _ in part.issue():
        latest += part.last_steps(begin, count, issued, 10)
    assert latest[-10:] == reads[-10:]


def test_what_is_hidden_brings_no_result_before_it_is_computed() -> None:
    for hidden, waiting, begins in itertools.product(range(6), range(9), (False, True)):
        assert hide(hidden, waiting, begins=begins) <= max(waiting, 1) + begins - 1


@pytest.mark.parametrize("seed", range(20))
def test_a_burst_is_held_at_its_first_step(seed: int) -> None:
    rng = np.random.default_rng(seed)
    limit, rounds, steps, groups = (int(number) for number in rng.integers(1, 9, 4))
    part = Part(100, 0, [(steps, groups)], rounds, False, 0, limit, True, 0, [[*range(groups)]], 40)
    latest: list[int] = []
    for begin, count, issued, _ in part.issue():
        latest += part.last_steps(begin, count, issued, 10)
    assert latest[-10:] == cycles_of(list(part.reads()))[-10:]


@pytest.mark.parametrize("seed", range(50))
def test_chunks_begin_and_end_in_beats(seed: int) -> None:
    rng = np.random.default_rng(seed)
    beat, address, pieces, piece = 8, *(int(number) for number in rng.integers(1, 30, 3))
    chunk = int(rng.choice([1, 2, 4, 8]))
    run = LoadRun(address, pieces * piece, beat, piece, chunk)
    # First and last byte of each chunk, on the bus.
    chunks = [
        (byte, min(byte + chunk, end) - 1)
        for end in range(address + piece, address + (pieces + 1) * piece, piece)
        for byte in range(end - piece, end, chunk)
    ]
    first = address // beat
    for beats in range(1, chunks[-1][1] // beat - first + 2):
        stop = (first + beats) * beat
        begun, ended = (sum(chunk[side] < stop for chunk in chunks) for side in (0, 1))
        assert (run.begun(beats), run.ended(beats)) == (begun, ended)
        if ended:
            assert run.crosses(beats) == (chunks[ended - 1][0] < stop - beat)
    assert run.ended(0) == 0 == run.begun(-3)


def test_processes_go_on_in_the_order_of_time_and_rank() -> None:
    agenda, signal, seen = Agenda(), Signal(), []

    def process(name: str, *waits: int | Signal) -> Process:
        for wait in waits:
            yield wait
            seen.append((name, agenda.now))
        if name == "first":
            agenda.fire(signal)

    agenda.start(process("late", 5, 7), 1)
    agenda.start(process("woken", signal), 0)
    agenda.start(process("first", 3, 7), 0)
    agenda.run()
    assert seen == [("first", 3), ("late", 5), ("first", 7), ("woken", 7), ("late", 7)]


def test_events_are_waited_for_by_number() -> None:
    agenda, seen = Agenda(), []
    events = Events(agenda)

    def wait(index: int | None) -> Process:
        seen.append((index, (yield from events.of(index)), agenda.now))

    def happen() -> Process:
        yield 5
        events.add(7)
        yield 6
        events.add(9)

    for index in (None, -1, 1, 0):
        agenda.start(wait(index), 1)
    agenda.start(happen(), 0)
    assert events.last == 0
    agenda.run()
    assert seen == [(None, 0, 0), (-1, 0, 0), (0, 7, 5), (1, 9, 6)]
    assert events.last == 9


@pytest.mark.parametrize("preset", ["tiny", "ecp5-85k"])
def test_every_chunk_of_a_load_is_counted_once(preset: str) -> None:
    config = PRESETS[preset]
    maker = GraphMaker((24, 30, 3))
    name = maker.convolution("x", 20, Window((3, 3), pads=(1, 1, 1, 1)))
    plan = plan_graph(maker.finish(maker.convolution(name, 24, Window((3, 3), pads=(1, 1, 1, 1)))), config)
    agenda = Agenda()
    around = CoreContext(agenda, ReadBus(agenda, shared=True), None, Barriers(agenda))
    queues = CoreClock(config, 0, plan.commands, around, last=Queue.DMA)
    queues.start()
    agenda.run()
    chunks = 0
    for command in plan.queue(Queue.DMA):
        fields = command.fields
        if command.opcode is Opcode.FILL:
            chunks += fill_cycles(config, fields["rows"], fields["piece_bytes"])
        elif command.opcode is Opcode.LOAD:
            memory, size = find_memory(fields["memory"]), fields["piece_bytes"]
            runs = fields["rows"] * fields["folds"]
            if memory is LocalMemory.FEATURE:
                chunks += runs * chunk_cycles(config, fields["row_pieces"], size)
            else:
                unit = min(config.axi.data_bytes, memory.write_bytes(config.array.lanes))
                chunks += runs * -(-size // unit)
    assert queues.load.write.chunks == chunks > 100


@pytest.mark.parametrize(("row_bytes", "rows"), [(4, 7), (2 * 64, 4)])
def test_stages_of_a_store_hold_what_cannot_be_read(row_bytes: int, rows: int) -> None:
    # The reader has a burst, two begin, two are found; a row is split, another one waits for that.
    config, agenda, port = PRESETS["tiny"], Agenda(), MemoryPort()
    port.take(1000, lambda: [Rounds(0, 1000, 1, ((0, 1000),))])
    store = StoreClock(agenda, config, port, Events(agenda))
    store.start()
    for number in range(10):
        fields = Store(rows=1, external=256 * number, row_bytes=row_bytes)
        store.accept(Command(fields), 20 * number)
    agenda.run()
    assert len(store.walked.times) == 10
    assert sum(time < 500 for time in store.walked.times) == rows
    assert min(store.read.times) > 1000


def load_of(**fields: int) -> Load:
    once = dict.fromkeys(("rows", "folds", "row_pieces", "piece_bytes"), 1)
    return Load(**{"memory": LocalMemory.FEATURE, **once, **fields})


def test_runs_of_a_load_begin_at_its_rows_and_folds() -> None:
    fields = load_of(external=100, rows=2, folds=3, external_row=40, external_fold=7)
    assert [run.address for run in runs(PRESETS["tiny"], fields)] == [100, 107, 114, 140, 147, 154]


@pytest.mark.parametrize(("pieces", "piece_bytes", "cycles"), [(16, 3, 16), (12, 4, 12), (1, 46, 12)])
def test_a_load_writes_from_its_first_beat_on(pieces: int, piece_bytes: int, cycles: int) -> None:
    # Twelve beats each: more chunks than these, as many, and a last beat that is not full.
    agenda = Agenda()
    completed = Events(agenda)
    load = LoadClock(agenda, PRESETS["tiny"], ReadBus(agenda, shared=False), MemoryPort(), completed)
    load.start()
    load.accept(Command(load_of(row_pieces=pieces, piece_bytes=piece_bytes)), 0)
    agenda.run()
    assert completed.last == load.begins.times[0] + OVERHEADS.load_write + cycles + OVERHEADS.write_finish
