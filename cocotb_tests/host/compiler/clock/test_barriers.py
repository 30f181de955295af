"""Where cores meet, against the clock."""

from __future__ import annotations

from lutterfly.golden.timing.overheads import OVERHEADS
from lutterfly.host.compiler.clock.buses import Agenda, Barriers, Process

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
