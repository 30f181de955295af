"""Observe one inference on the simulated core: the times of every command, from the harness's trace.

From these follow the occupancy of the feature memory and the use of each layer's cycles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...golden.isa import Opcode
from ...golden.program.outline import CoreOutline
from ...golden.timing.issue import issue_steps
from ...golden.units import Queue
from ..program import Bodies, BodyCommand
from ..session.session import InferenceSession
from ..simulation.simulator import EventKind, Simulator

#: Cycles from the end of the last core to the common interrupt, beyond those of a single core.
CLUSTER_INTERRUPT = 1


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that ran. Times are measured, in cycles from the start of the run.

    Attributes
    ----------
    command : BodyCommand
        The program's command, with the predicted times.
    index : int
        Index in its queue.
    begin : int
        The time when its unit got it (LOAD, STORE, FILL, BARRIER), or when its first step was issued (COMPUTE).
    issued : int
        The time after its last step (COMPUTE); else ``end``.
    end : int
        The time after its completion: its last byte is written, its last result can be read.
    """

    command: BodyCommand
    index: int
    begin: int
    issued: int
    end: int

    @property
    def kind(self) -> str:
        """The opcode's name."""
        return Opcode(self.command.opcode).name


@dataclass(frozen=True, slots=True)
class Observation:
    """One inference, as one core sees it.

    Attributes
    ----------
    cycles : int
        Cycles from start to done, by the counter of the core that ended last.
    counters : dict of str to int
        All performance counters of the core.
    dma, compute : tuple of Ran
        The commands of each queue, in order.
    outputs : list of arrays
        The results of the accelerator.
    """

    cycles: int
    counters: dict[str, int]
    dma: tuple[Ran, ...]
    compute: tuple[Ran, ...]
    outputs: list[np.ndarray]

    def queue(self, queue: Queue) -> tuple[Ran, ...]:
        """Return the commands of a queue, in order."""
        return self.dma if queue is Queue.DMA else self.compute


def observe(
    session: InferenceSession, simulator: Simulator, bodies: Bodies, feeds: Mapping[str, np.ndarray]
) -> list[Observation]:
    """Run one inference, and find the times of each core's commands.

    Parameters
    ----------
    session : InferenceSession
        A session on the simulated accelerator.
    simulator : Simulator
        That accelerator.
    bodies : sequence of mapping of Queue to sequence of BodyCommand
        The commands of each core.
    feeds : mapping of str to array
        The model's inputs, at most ``session.batch`` samples of each.

    Raises
    ------
    AcceleratorError
        If a core stops.
    """
    driver, inputs = session.driver(), session.head(feeds)
    simulator.clear_events()
    outputs = driver.infer(inputs)
    cycles, counters = driver.counters()["cycles"], driver.core_counters()
    times = [_times(simulator, number) for number in range(len(counters))]
    # The common interrupt rises when the run is done, and the counter has its duration.
    start = int(times[0][EventKind.INTERRUPT][-1]) - cycles - (CLUSTER_INTERRUPT if len(counters) > 1 else 0)
    return [_observation(*of_core, (start, cycles), outputs) for of_core in zip(bodies, times, counters, strict=True)]


def _times(simulator: Simulator, core: int) -> dict[EventKind, np.ndarray]:
    """Return the times of each kind of event of a core: int64[events]."""
    events = simulator.events(core=core).astype(np.int64)
    return {kind: events[events[:, 1] == kind, 0] for kind in EventKind}


def _observation(
    body: Mapping[Queue, Sequence[BodyCommand]],
    times: Mapping[EventKind, np.ndarray],
    counters: dict[str, int],
    run: tuple[int, int],
    outputs: list[np.ndarray],
) -> Observation:
    """Create the observation of a core, for a run with this beginning and this number of cycles."""
    start, cycles = run
    moved = (times[EventKind.DMA_BEGIN], times[EventKind.DMA_DONE], times[EventKind.DMA_DONE])
    computed = (times[EventKind.ISSUE_FIRST], times[EventKind.ISSUE_LAST] + 1, times[EventKind.COMPUTE_DONE])
    return Observation(
        cycles,
        counters,
        *(
            tuple(
                Ran(command, index, *(int(cycle) - start for cycle in at))
                for index, (command, *at) in enumerate(zip(body[queue], *columns, strict=True))
            )
            for queue, columns in ((Queue.DMA, moved), (Queue.COMPUTE, computed))
        ),
        outputs,
    )


# Occupancy of the feature memory: the compiler's addresses, with the times of a run.


@dataclass(frozen=True, slots=True)
class Occupant:
    """A tensor, or a part of one, in the feature memory.

    Bytes that are not read any more may hold another tensor before its end.

    Attributes
    ----------
    tensor : str
    address, size_bytes : int
        The address range, with its padding.
    begin, end : int
        Measured cycles, from the beginning of the first command that writes it to the end of the last one, or to the
        issue of the last step that reads it.
    is_whole : bool
        Whether it is the whole tensor.
    """

    tensor: str
    address: int
    size_bytes: int
    begin: int
    end: int
    is_whole: bool


def occupants(outline: CoreOutline, observation: Observation) -> list[Occupant]:
    """Return all tensors in the feature memory during an inference, in the order of their first use."""
    found = []
    for placed in outline.placed:
        moved = [observation.dma[index] for index in placed.dma]
        moved += [observation.compute[index] for index in placed.written]
        read = [observation.compute[index] for index in placed.read]
        begin = min(ran.begin for ran in (*moved, *read))
        end = max([*(ran.end for ran in moved), *(ran.issued for ran in read)])
        found.append(Occupant(placed.tensor, placed.address, placed.size_bytes, begin, end, placed.is_whole))
    return found


def used_bytes(found: Sequence[Occupant]) -> Mapping[int, int]:
    """Return the used bytes of the feature memory, from each cycle on in which they may change."""
    levels = {}
    for cycle in sorted({cycle for occupant in found for cycle in (occupant.begin, occupant.end)}):
        ranges = sorted(
            (occupant.address, occupant.address + occupant.size_bytes)
            for occupant in found
            if occupant.begin <= cycle < occupant.end
        )
        level = covered = 0
        for start, end in ranges:
            level += max(end - max(start, covered), 0)
            covered = max(covered, end)
        levels[cycle] = level
    return levels


# The use of each layer's cycles: steps that multiply, steps that do not, and the reasons of waits.

#: Reasons why no step was issued, in the order in which a cycle is charged.
RESULTS, BARRIER, LOADED, STORED, TURNAROUND, REQUANTISER = WAITS = (
    "earlier results",
    "other cores",
    "LOAD or FILL",
    "STORE",
    "command turnaround",
    "requantiser",
)


@dataclass(frozen=True, slots=True)
class Share:
    """The measured cycles of one layer, from the last step of the layer before.

    Attributes
    ----------
    begin, end : int
        The first cycle, and the one after the last.
    steps : int
        Cycles in which the array took a step.
    waits : dict of str to int
        The other cycles, by reason.
    dma : int
        The cycles in which a LOAD, STORE or FILL was in progress, for any layer.
    """

    begin: int
    end: int
    steps: int
    waits: dict[str, int]
    dma: int

    @property
    def cycles(self) -> int:
        """All cycles."""
        return self.end - self.begin


def shares(observation: Observation, layers: Sequence[Sequence[int]]) -> list[Share]:
    """Divide an inference up to its last step among the layers.

    Parameters
    ----------
    observation : Observation
    layers : sequence of sequence of int
        The compute commands of each layer, in order of execution.

    Returns
    -------
    list of Share
        One for each layer. After the last one's end the results are written back and the outputs are stored.
    """
    found, end = [], 0
    before: Ran | None = None
    for commands in layers:
        begin, steps, waits = end, 0, dict.fromkeys(WAITS, 0)
        for ran in (observation.compute[index] for index in commands):
            for reason, cycles in _gap(ran, before, end, observation.dma).items():
                waits[reason] += cycles
            issued = issue_steps(ran.command.fields)
            steps += issued
            waits[REQUANTISER] += ran.issued - ran.begin - issued
            before, end = ran, ran.issued
        found.append(Share(begin, end, steps, waits, _moving(observation.dma, begin, end)))
    return found


def _moving(dma: Sequence[Ran], begin: int, end: int) -> int:
    """Count the cycles from ``begin`` up to ``end`` in which a command of the DMA queue was in progress."""
    cycles, now = 0, begin
    for ran in dma:
        first, after = max(ran.begin, now), min(ran.end, end)
        if first < after:
            cycles, now = cycles + after - first, after
    return cycles


def _gap(ran: Ran, before: Ran | None, start: int, dma: Sequence[Ran]) -> dict[str, int]:
    """Return the cycles from ``start`` to a command's first step, by reason."""
    waits, now = {}, start
    is_dependent = before is not None and (
        ran.command.after or ran.command.fields["engine"] != before.command.fields["engine"]
    )
    if is_dependent:
        # These cycles are independent of the DMA.
        until = min(max(before.end, now), ran.begin)
        waits[RESULTS], now = until - now, until
    if ran.command.waits_for is not None:
        waited_for = dma[ran.command.waits_for]
        until = min(max(waited_for.end, now), ran.begin)
        # A LOAD after a barrier waits for other cores first.
        barriers = [earlier for earlier in dma[: ran.command.waits_for + 1] if earlier.kind == "BARRIER"]
        waits[BARRIER] = _moving(barriers, now, until)
        waits[STORED if waited_for.kind == "STORE" else LOADED] = until - now - waits[BARRIER]
        now = until
    waits[TURNAROUND] = ran.begin - now
    return waits
