"""The golden machine: executes compiled programs on memory images, command by command, in any order the hardware may.

Unordered commands overlap in the hardware. Here the beginning and the completion of a command are two events, in an
order that the caller chooses. Between them everything that it writes is poisoned, and so is any input of it that the
other queue begins to write meanwhile; what another core stores is poison until a barrier. A program whose tokens,
`after` flags and barriers are right gives the same bytes in every order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ..config import Config
from ..program.program import Program, Queues, WrittenTensor
from ..program.stages import stages
from ..units import MOST_CORES, ErrorCode, Unit
from .core import CoreModel, Event, Observer
from .dma import ArenaViews
from .flights import MachineError
from .images import TensorPart, of_shares, write_contents

UInt8 = npt.NDArray[np.uint8]

#: Orders: the queue of a core that continues where both can.
ORDERS = ("dma-first", "compute-first", "random")
#: Turns: the core that continues where several can: one as long as it can, then the next; all in turns; any.
_FIRSTS = tuple(f"core-{number}-first" for number in range(MOST_CORES))
TURNS = (*_FIRSTS, "in-turns", "random")


def interleavings(cores: int) -> Iterator[tuple[str, str]]:
    """Yield pairs of order and turns without end, such that each order is tried, and each core first."""
    turns = (*_FIRSTS[:cores], "in-turns", "random") if cores > 1 else _FIRSTS[:1]
    return zip(itertools.cycle(ORDERS), itertools.cycle(turns), strict=False)


class Machine:
    """The cores of an accelerator, and the execution of programs on them.

    Parameters
    ----------
    config : Config
    seed : int
        Seed of the initial contents of the memories, of the poison, and of random choices.

    Attributes
    ----------
    cores : list of CoreModel
    """

    def __init__(self, config: Config, *, seed: int = 0):
        self._rng = np.random.default_rng(seed)
        self.cores = [CoreModel(config, number, self._rng) for number in range(config.cores)]

    def run(
        self,
        queues: Sequence[Queues],
        arena: UInt8,
        *,
        order: str = "dma-first",
        turns: str = "core-0-first",
        observe: Observer | None = None,
    ) -> None:
        """Execute one run of all queues.

        Parameters
        ----------
        queues : sequence of Queues
            For each core, the place of its commands in the arena and their number.
        arena : uint8[arena_bytes]
            External memory, read and written.
        order : str
            ``"dma-first"``: the DMA queue begins what it can before the compute queue begins anything, and commands
            complete as late as possible; ``"compute-first"``: the other way round; ``"random"``: any possible event may
            be next.
        turns : str
            ``"core-2-first"``: core 2 goes on as long as it can, then core 3, and so on; ``"in-turns"``: the cores take
            turns, event by event; ``"random"``: any core that can.
        observe : callable
            Called with a core, a compute command's index and the feature memory when that command has completed.

        Raises
        ------
        MachineError
            If the hardware would stop with an error, or would wait for ever.
        ValueError
            If ``order`` or ``turns`` is not one of these, or if there are not as many queues as cores.
        """
        if order not in ORDERS:
            raise ValueError(f"order must be one of {', '.join(ORDERS)}, not {order}")
        if turns not in TURNS:
            raise ValueError(f"turns must be one of {', '.join(TURNS)}, not {turns}")
        if len(queues) != len(self.cores):
            raise ValueError(f"queues must be those of {len(self.cores)} cores, not of {len(queues)}")
        views = ArenaViews(arena, len(self.cores), self._rng)
        for core, own in zip(self.cores, queues, strict=True):
            core.start(own, views, observe)
        last = len(self.cores) - 1
        while not all(core.done for core in self.cores):
            if self._meet(views):
                continue
            choices = list(self._choices(order, turns, last))
            if not choices:
                raise next(core for core in self.cores if not core.done).stuck()
            last, events = choices[self._rng.integers(len(choices)) if turns == "random" else 0]
            events[self._rng.integers(len(events)) if order == "random" else 0]()
        views.finish()
        for core in self.cores:
            core.check_tokens()

    def _choices(self, order: str, turns: str, last: int) -> Iterator[tuple[int, list[Event]]]:
        """Return the cores that can continue, that whose turn it is first, each with its possible events."""
        first = last + 1 if turns == "in-turns" else _FIRSTS.index(turns) if turns in _FIRSTS else 0
        for offset in range(len(self.cores)):
            number = (first + offset) % len(self.cores)
            events = list(self.cores[number].events(compute_first=order == "compute-first"))
            if events:
                yield number, events

    def _meet(self, views: ArenaViews) -> bool:
        """Let complete groups of cores pass their barriers; return whether one did."""
        for core in self.cores:
            flight = core.barrier
            if flight is None:
                continue
            group = [other for other in self.cores if core.barrier_group >> other.number & 1]
            if all(other.barrier_group == core.barrier_group for other in group):
                views.meet([other.number for other in group])
                for other in group:
                    other.pass_barrier()
                return True
            if any(other.meets_no_more for other in group):
                raise MachineError(ErrorCode.BARRIER, Unit.BARRIER, flight.index, core=core.number)
        return False

    def run_prologue(
        self, program: Program, arena: UInt8, *, order: str = "dma-first", turns: str = "core-0-first"
    ) -> None:
        """Load the resident data, in stages if the arena does not hold the whole program, and prepare the arena for
        inferences.

        Raises
        ------
        ValueError
            If the arena is too small, see :func:`..program.stages.stages`.
        """
        for stage in stages(program, len(arena)):
            write_contents(arena, stage.contents)
            self.run(stage.cores, arena, order=order, turns=turns)
        write_contents(arena, program.contents())

    def run_body(
        self, program: Program, arena: UInt8, *, order: str = "dma-first", turns: str = "core-0-first"
    ) -> list[dict[str, npt.NDArray[np.int8]]]:
        """Run one inference; return for each share of the samples every tensor that leaves the array, by name, as
        int8[height, width, channels]."""
        completed_by: dict[tuple[int, int], list[WrittenTensor]] = {}
        for number, core in enumerate(program.cores):
            for tensor in core.written:
                completed_by.setdefault((number, tensor.command), []).append(tensor)
        parts: list[list[TensorPart]] = [[] for _ in program.cores]

        def observe(number: int, index: int, feature: UInt8) -> None:
            for tensor in completed_by.get((number, index), ()):
                parts[number].append(TensorPart.written(tensor, feature))

        self.run([core.body for core in program.cores], arena, order=order, turns=turns, observe=observe)
        for own, core in zip(parts, program.cores, strict=True):
            own += [
                TensorPart.spilled(tensor, arena[tensor.address : tensor.address + tensor.size_bytes])
                for tensor in core.spilled
            ]
        return of_shares(parts, program.shares)
