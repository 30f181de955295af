"""Observe one inference on the simulated core: the beginning and end of every command, from the harness's trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...golden.isa import Opcode
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
