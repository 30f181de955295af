"""Several cores in the golden machine: what barriers order, what is poison without them, and errors."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cocotb_tests.support.programs import place
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.isa import BARRIER, END, FILL, LOAD, STORE
from lutterfly.golden.machine.dma import ArenaViews
from lutterfly.golden.machine.flights import MachineError
from lutterfly.golden.machine.machine import ORDERS, TURNS, Machine, interleavings
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.program import QueueProgram, Queues
from lutterfly.golden.units import ErrorCode, Unit

CORES, BLOCK, PAGE = 4, 64, 4096
CONFIG = dataclasses.replace(PRESETS["tiny"], cluster=ClusterConfig(cores=CORES))
ALL = (1 << CORES) - 1
END_ONLY = [END.encode()]


def programs(dma: list[list[bytes]]) -> tuple[list[Queues], np.ndarray]:
    """DMA programs of all cores, END left out, behind a page of data."""
    arena, cores = np.zeros((1 + 2 * CORES) * PAGE, np.uint8), []
    for core, commands in enumerate(dma):
        at = (1 + 2 * core) * PAGE
        queues = Queues(QueueProgram(b"".join([*commands, *END_ONLY]), at), QueueProgram(END.encode(), at + PAGE))
        place(arena, queues)
        cores.append(queues)
    return cores, arena


def store(core: int) -> bytes:
    """A core's block, which holds its number and one, to its place in the arena."""
    return STORE.encode(external=core * BLOCK, local=0, row_bytes=BLOCK, rows=1)


def load(core: int) -> bytes:
    """Another core's block, behind the own one."""
    sizes = {"row_pieces": 1, "piece_bytes": BLOCK, "rows": 1, "folds": 1}
    return LOAD.encode(external=core * BLOCK, local=BLOCK, memory=LocalMemory.FEATURE, **sizes)


def fill(core: int) -> bytes:
    return FILL.encode(local=0, piece_bytes=BLOCK, rows=1, value=core + 1)


def ring(barrier: list[bytes]) -> list[list[bytes]]:
    """Each core stores its block, and loads the next one's."""
    return [[fill(core), store(core), *barrier, load((core + 1) % CORES)] for core in range(CORES)]


def loaded(machine: Machine) -> list[set[int]]:
    return [set(core.memories[LocalMemory.FEATURE][BLOCK : 2 * BLOCK].tolist()) for core in machine.cores]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("turns", ["core-0-first", "core-3-first", "in-turns", "random"])
def test_a_barrier_orders_what_one_stores_and_another_loads(order: str, turns: str) -> None:
    machine = Machine(CONFIG, seed=1)
    cores, arena = programs(ring([BARRIER.encode(group=ALL)]))
    machine.run(cores, arena, order=order, turns=turns)
    assert loaded(machine) == [{(core + 1) % CORES + 1} for core in range(CORES)]
    assert arena[: CORES * BLOCK].tolist() == [core + 1 for core in range(CORES) for _ in range(BLOCK)]


@pytest.mark.parametrize("turns", TURNS[:CORES] + TURNS[-2:])
def test_without_a_barrier_it_is_poison_or_old_in_every_order(turns: str) -> None:
    machine = Machine(CONFIG, seed=1)
    cores, arena = programs(ring([]))
    machine.run(cores, arena, turns=turns)
    assert all((core + 1) % CORES + 1 not in found or len(found) > 1 for core, found in enumerate(loaded(machine)))


def test_a_barrier_of_others_orders_nothing() -> None:
    groups = [[BARRIER.encode(group=0b0011)], [BARRIER.encode(group=0b0011)], [], []]
    machine = Machine(CONFIG, seed=1)
    cores, arena = programs([[*own[:2], *groups[core], own[2]] for core, own in enumerate(ring([]))])
    machine.run(cores, arena, turns="core-1-first")
    first, *others = loaded(machine)
    assert first == {2}
    assert all(len(found) > 1 or found == {0} for found in others)


def test_what_a_core_has_learned_it_hands_on() -> None:
    views = ArenaViews(np.zeros(8, np.uint8), 3, np.random.default_rng(0))
    here = np.arange(8) < 4
    views.begin_store(here)
    views[0][:4] = 7
    views.complete_store(0, here)
    assert (views[1][:4] != 7).any()
    views.meet([0, 1])
    views.meet([1, 2])
    assert (views[2][:4] == 7).all()


def test_two_stores_with_no_barrier_between_leave_poison() -> None:
    arena, here = np.zeros(64, np.uint8), np.ones(64, bool)
    views = ArenaViews(arena, 2, np.random.default_rng(0))
    for core in (0, 1):
        views.begin_store(here)
        views[core][:] = 7
        views.complete_store(core, here)
    views.finish()
    assert (arena != 7).any()


def error_of(dma: list[list[bytes]], turns: str = "core-0-first") -> tuple[ErrorCode, Unit, int, int]:
    cores, arena = programs(dma)
    with pytest.raises(MachineError) as caught:
        Machine(CONFIG).run(cores, arena, turns=turns)
    return caught.value.code, caught.value.unit, caught.value.index, caught.value.core


@pytest.mark.parametrize("turns", ["core-0-first", "core-2-first", "in-turns"])
def test_a_barrier_that_one_program_lacks(turns: str) -> None:
    dma = ring([BARRIER.encode(group=ALL)])
    del dma[2][2]
    code, unit, index, core = error_of(dma, turns)
    assert (code, unit, index) == (ErrorCode.BARRIER, Unit.BARRIER, 2)
    assert core != 2


@pytest.mark.parametrize("group", [0b0000, 0b1101, 0b1_0010])
def test_groups_that_are_refused(group: int) -> None:
    dma = [[], [BARRIER.encode(group=group)], [], []]
    assert error_of(dma) == (ErrorCode.ILLEGAL_FIELD, Unit.BARRIER, 0, 1)


def test_groups_that_wait_for_one_another_for_ever() -> None:
    dma = [[BARRIER.encode(group=group)] for group in (0b0011, 0b0110, 0b1100, 0b1001)]
    code, *_ = error_of(dma)
    assert code is ErrorCode.WATCHDOG


def test_one_core_knows_no_barrier() -> None:
    cores, arena = programs([[BARRIER.encode(group=1)]])
    with pytest.raises(MachineError, match="ILLEGAL_OPCODE"):
        Machine(PRESETS["tiny"]).run(cores, arena)


def test_queues_of_other_cores_are_refused() -> None:
    cores, arena = programs([[], []])
    with pytest.raises(ValueError, match=r"^queues must be those of 4 cores, not of 2$"):
        Machine(CONFIG).run(cores, arena)
    with pytest.raises(ValueError, match=r"^turns must be one of core-0-first, .*random, not sorted$"):
        Machine(CONFIG).run(cores, arena, turns="sorted")


def test_every_core_is_first_in_some_interleaving() -> None:
    found = [pair for pair, _ in zip(interleavings(2), range(12), strict=False)]
    assert {turns for _, turns in found} == {"core-0-first", "core-1-first", "in-turns", "random"}
    assert {order for order, _ in found} == set(ORDERS)
