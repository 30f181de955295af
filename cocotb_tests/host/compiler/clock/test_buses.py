"""Buses and barriers of the clock: turns of the arbiter, bursts that are collected, and where cores meet."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from functools import partial

import pytest

from lutterfly.golden.isa import Store
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.timing.latencies import BEATS_OUTGOING, COLLECTED_BURSTS, REQUESTS_AHEAD
from lutterfly.golden.timing.overheads import OVERHEADS
from lutterfly.host.compiler.clock.buses import (
    Agenda,
    Barriers,
    Events,
    MemoryPort,
    Process,
    ReadMemory,
    SharedReads,
    SharedWrites,
    Turns,
    Wait,
)
from lutterfly.host.compiler.clock.dma import StoreClock
from lutterfly.host.compiler.operation import Command


@pytest.mark.parametrize(("last", "order"), [(0, [1, 2, 0]), (1, [2, 0, 1]), (2, [0, 1, 2])])
def test_the_first_behind_the_last_one_is_served(last: int, order: list[int]) -> None:
    agenda, served = Agenda(), list[tuple[int, int]]()
    turns = Turns(agenda, 3, last)

    def ask(core: int, request: int) -> Process:
        now = yield from turns.wait(core, request, lambda: served[-1][0] + 10 if served else 0)
        served.append((now, core))

    for core in range(3):
        for request in (5, 6):
            agenda.start(ask(core, request), 0)
    agenda.run()
    assert served == [(5 + 10 * number, core) for number, core in enumerate(order + order)]
    assert turns.last == order[-1]


def test_who_is_not_here_has_no_turn() -> None:
    agenda, served = Agenda(), list[tuple[int, int]]()
    turns = Turns(agenda, 2, 0)

    def ask(core: int, request: int) -> Process:
        now = yield from turns.wait(core, request, lambda: 0)
        served.append((now, core))

    for core, request in ((1, 90), (0, 50), (0, 20)):
        agenda.start(ask(core, request), 0)
    agenda.run()
    assert served == [(20, 0), (50, 0), (90, 1)]


def test_requests_wait_in_front_of_the_turns() -> None:
    # One is at the pins.
    ahead = OVERHEADS.bursts + 1 + REQUESTS_AHEAD
    agenda, memory, taken = Agenda(), ReadMemory(), list[int]()
    reads, begins = SharedReads(memory, Turns(agenda, 2, 0), 0), Events(agenda)

    def ask() -> Process:
        now = 0
        for _ in range(ahead + 2):
            now = yield from reads.take(now, 16, begins)
            taken.append(now)

    agenda.start(ask(), 0)
    agenda.run()
    # The memory's are taken one after the other, then those that wait; the next ones as bursts end.
    assert taken[:ahead] == list(range(ahead))
    first = 2 + 1 + OVERHEADS.read_latency
    assert begins.times.tolist() == [first + OVERHEADS.shared_answer + 16 * number for number in range(len(taken))]
    assert taken[ahead:] == [first + 16 + 1, first + 32 + 1]


def test_bursts_of_all_cores_take_the_pins_one_after_the_other() -> None:
    agenda, answers = Agenda(), list[int]()
    writes = SharedWrites(Turns(agenda, 3, 2))

    def send(core: int, collected: int) -> Process:
        yield collected
        _, answered = yield from writes.send(core, collected, 16)
        answers.append(answered)

    for core, collected in enumerate((100, 101, 300)):
        agenda.start(send(core, collected), 0)
    agenda.run()
    first = 100 + OVERHEADS.shared_write + 16 + OVERHEADS.write_latency
    assert answers == [first, first + 16, first + 200]


def test_a_burst_waits_where_as_many_are_not_answered_as_the_memory_takes() -> None:
    agenda, begins = Agenda(), list[int]()
    writes = SharedWrites(Turns(agenda, 2, 0))

    def send() -> Process:
        for _ in range(OVERHEADS.bursts + 1):
            begin, _ = yield from writes.send(0, 0, 1)
            begins.append(begin)

    agenda.start(send(), 0)
    agenda.run()
    assert begins[OVERHEADS.bursts - 1] < begins[0] + 2 * OVERHEADS.bursts
    assert begins[-1] == begins[0] + 1 + OVERHEADS.write_latency + 1


@pytest.mark.parametrize("first_beats", [16, 8])
def test_a_store_reads_as_many_beats_ahead_as_there_is_room_for(first_beats: int) -> None:
    config, agenda = PRESETS["tiny"], Agenda()
    held, collected, left = 5000, list[int](), list[int]()

    def send(last: int, beats: int) -> Generator[Wait, None, tuple[int, int]]:
        collected.append(last)
        yield held
        begin = held + len(left)
        left.extend(range(begin, begin + beats))
        return begin, begin + beats + 40

    store = StoreClock(agenda, config, MemoryPort(), Events(agenda), send)
    store.start()
    beat = config.axi.data_bytes
    fields = Store(rows=1, external=(16 - first_beats) * beat, row_bytes=128 * beat)
    store.accept(Command(fields), 0)
    agenda.run()
    assert len(left) == 128
    ends = itertools.accumulate(store.bursts)
    for end, read in zip(ends, store.read.times, strict=True):
        # The last beat takes the place of one that has left.
        before = end - 1 - BEATS_OUTGOING - COLLECTED_BURSTS * config.axi.BURST_BEATS
        assert read < 200 if before < 0 else read == left[before] + OVERHEADS.shared_room + 1


def test_one_core_is_not_held_up() -> None:
    config = PRESETS["tiny"]
    times = []
    for shared in (False, True):
        agenda = Agenda()
        send = partial(SharedWrites(Turns(agenda, 2, 0)).send, 0) if shared else None
        store = StoreClock(agenda, config, MemoryPort(), Events(agenda), send)
        store.start()
        store.accept(Command(Store(rows=9, external=64, external_row=200, row_bytes=200)), 0)
        agenda.run()
        times.append((store.read.times, store.completed.last))
    (reads, end), (shared_reads, shared_end) = times
    assert shared_reads == reads
    assert 0 < shared_end - end <= 16 + OVERHEADS.shared_write


# Where cores meet, against the clock.

ALL, FIRST = 0b111, 0b011


def met(arrivals: dict[int, list[tuple[int, int]]]) -> dict[int, list[int]]:
    """When each core is past each of its barriers; ``arrivals``: group, and cycles since the one before."""
    agenda, found = Agenda(), {core: list[int]() for core in arrivals}
    barriers = Barriers(agenda)

    def go(core: int) -> Process:
        now = 0
        for group, cycles in arrivals[core]:
            now += cycles
            yield now
            now = yield from barriers.meet(core, group, now)
            found[core].append(now)

    for core in arrivals:
        agenda.start(go(core), 0)
    agenda.run()
    return found


def test_the_last_one_lets_all_go_on() -> None:
    found = met({0: [(ALL, 10)], 1: [(ALL, 200)], 2: [(ALL, 30)]})
    assert set(map(tuple, found.values())) == {(200 + OVERHEADS.barrier,)}


def test_each_meeting_of_a_group_is_one_of_its_own() -> None:
    found = met({0: [(FIRST, 10), (ALL, 5), (FIRST, 1)], 1: [(FIRST, 50), (ALL, 9), (FIRST, 70)], 2: [(ALL, 20)]})
    first = 50 + OVERHEADS.barrier
    second = first + 9 + OVERHEADS.barrier
    assert found == {
        0: [first, second, second + 70 + OVERHEADS.barrier],
        1: [first, second, second + 70 + OVERHEADS.barrier],
        2: [second],
    }


def test_who_is_missing_is_waited_for() -> None:
    assert met({0: [(FIRST, 10)], 1: []}) == {0: [], 1: []}
