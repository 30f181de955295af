"""A core of the golden machine: its memories, its queues, and the tokens between them."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from ..config import Config
from ..engines import find_memory
from ..isa import Barrier, CommandFields, Compute, Fill, Load, Opcode, Store
from ..memories import LocalMemory, memories
from ..program.program import Queues
from ..units import ErrorCode, Queue, Unit
from . import dma
from .compute import check_fields, compute_results, write_results, written_bytes
from .dma import ArenaViews, poison
from .flights import BegunCommand, CommandError, MachineError, Memories, QueueState
from .write_back import WriteBacks

UInt8 = npt.NDArray[np.uint8]
#: Called with a core, a compute command's index, and the feature memory when that command has completed.
Observer = Callable[[int, int, UInt8], None]
#: An event that may happen next.
Event = Callable[[], None]

#: Commands of the DMA queue that no unit executes.
_NO_TRANSFERS = (Opcode.SYNC, Opcode.END, Opcode.COMPUTE)


class CoreModel:
    """One core in its runs.

    Parameters
    ----------
    config : Config
    number : int
    rng : Generator
        For the initial contents of the memories, and the poison.

    Attributes
    ----------
    memories : dict of LocalMemory to uint8[size_bytes]
        The local memories of the configuration; they keep their contents from run to run.
    """

    def __init__(self, config: Config, number: int, rng: np.random.Generator):
        self.config, self.number = config, number
        self._rng = rng
        self._queues: dict[Queue, QueueState] = {}
        #: Tokens that are given and not taken, for each pair of peers: giver, taker.
        self._tokens: Counter[tuple[Queue, Queue]] = Counter()
        self._write_backs: WriteBacks
        self._arena: ArenaViews
        self._observe: Observer | None = None
        self.memories: Memories = {
            memory: rng.integers(0, 256, config.size_bytes(memory), dtype=np.uint8) for memory in memories(config)
        }

    def start(self, queues: Queues, arena: ArenaViews, observe: Observer | None) -> None:
        """Begin a run."""
        self._arena, self._observe = arena, observe
        for queue in Queue:
            start, size = queues[queue].address, len(queues[queue].commands)
            commands = arena[self.number][start : start + size].tobytes()
            self._queues[queue] = QueueState(queue, self.config, self.number, commands)
        self._tokens.clear()
        self._write_backs = WriteBacks(self.config)

    @property
    def done(self) -> bool:
        """Whether both queues have ended."""
        return all(side.done for side in self._queues.values())

    def events(self, *, compute_first: bool) -> Iterator[Event]:
        """Return the events that may happen next: those of the first queue come first, and in each queue beginnings.

        Passing a barrier is not an event of a single core.
        """
        sides = [self._queues[queue] for queue in (reversed(Queue) if compute_first else Queue)]
        for side in sides:
            if self._may_begin(side):
                yield functools.partial(self._begin, side)
        for side in sides:
            if side.flights and side.flights[0].opcode is not Opcode.BARRIER:
                yield functools.partial(self._complete, side)

    @property
    def barrier(self) -> BegunCommand | None:
        """The BARRIER at which the core waits, or None."""
        flights = self._queues[Queue.DMA].flights
        return flights[0] if flights and flights[0].opcode is Opcode.BARRIER else None

    @property
    def barrier_group(self) -> int:
        """The cores that meet at that BARRIER, bit i for core i; 0 if the core waits at none."""
        fields = self.barrier and self.barrier.fields
        return fields.group if isinstance(fields, Barrier) else 0

    @property
    def meets_no_more(self) -> bool:
        """Whether no BARRIER comes any more."""
        return self._queues[Queue.DMA].done

    def pass_barrier(self) -> None:
        """Complete the BARRIER at which the core waits."""
        self._complete(self._queues[Queue.DMA])

    def stuck(self) -> MachineError:
        """Return the error of a core that waits for ever."""
        side = next(side for side in (self._queues[queue] for queue in reversed(Queue)) if not side.done)
        return side.error(ErrorCode.WATCHDOG, side.next)

    def check_tokens(self) -> None:
        """Raise MachineError if tokens are left."""
        for queue in Queue:
            if self._tokens[queue.peer, queue]:
                raise self._queues[queue].error(ErrorCode.TOKENS_LEFT, self._queues[queue].next - 1)

    def _may_begin(self, side: QueueState) -> bool:
        if side.done:
            return False
        fields = side.peek()
        opcode = fields.opcode
        if fields.wait > self._tokens[side.queue.peer, side.queue]:
            return False
        if side.flights and (fields.after or opcode in (Opcode.END, Opcode.BARRIER)):
            return False
        # Loads and fills share a unit; a store waits for them, and they for stores. No command passes a barrier.
        kinds = {_kind(flight.opcode) for flight in side.flights if flight.opcode is not Opcode.SYNC}
        return opcode in _NO_TRANSFERS or kinds <= {_kind(opcode)}

    def _begin(self, side: QueueState) -> None:
        fields = side.peek()
        opcode = fields.opcode
        self._tokens[side.queue.peer, side.queue] -= fields.wait
        index = side.next
        side.next += 1
        if opcode is Opcode.END:
            side.done = True
            self._tokens[side.queue, side.queue.peer] += fields.signal
            return
        flight = BegunCommand(index, fields, self.memories)
        if isinstance(fields, Compute):
            self._foresee(side, flight, fields)
        if opcode in (Opcode.COMPUTE, Opcode.STORE):
            flight.memories = {memory: array.copy() for memory, array in self.memories.items()}
        try:
            if isinstance(fields, Store):
                self._arena.begin_store(self._stored(fields))
            elif isinstance(fields, Barrier):
                self._check_group(fields.group)
            elif opcode is not Opcode.SYNC:
                memory, written = self._written_locally(fields)
                begun = (flight.memories for flight in self._queues[side.queue.peer].flights)
                for image in (self.memories, *(own for own in begun if own is not self.memories)):
                    poison(image[memory], written, self._rng)
        except CommandError as error:
            raise self._error(error, index) from error
        side.flights.append(flight)

    def _foresee(self, side: QueueState, flight: BegunCommand, fields: Compute) -> None:
        """Find the bytes that a COMPUTE command may read too early, and complete the commands that must have completed
        by then."""
        try:
            check_fields(fields, self.config)
        except CommandError as error:
            raise self._error(error, flight.index) from error
        issued, flight.early = self._write_backs.foresee(fields, after=bool(fields.after))
        self._write_backs.issue(fields, issued)
        flight.complete = issued.complete
        while side.flights and side.flights[0].complete <= issued.begin:
            self._complete(side)

    def _complete(self, side: QueueState) -> None:
        flight = side.flights.popleft()
        feature, view = self.memories[LocalMemory.FEATURE], self._arena[self.number]
        match flight.fields:
            case Load() as load:
                dma.load(load, view, self.memories, lanes=self.config.array.lanes)
            case Fill() as fill:
                dma.fill(fill, feature)
            case Store() as store:
                dma.store(store, view, flight.memories[LocalMemory.FEATURE])
                self._arena.complete_store(self.number, self._stored(store))
            case Compute() as compute:
                try:
                    results = compute_results(compute, flight.memories, self.config, self._rng, flight.early)
                except CommandError as error:
                    raise self._error(error, flight.index) from error
                # Commands that have begun see the write as well; bytes that they may read too early are poison then.
                for image in (feature, *(later.memories[LocalMemory.FEATURE] for later in side.flights if later.early)):
                    write_results(compute, results, image, self.config)
                if self._observe is not None:
                    self._observe(self.number, flight.index, feature)
        self._tokens[side.queue, side.queue.peer] += flight.fields.signal

    def _check_group(self, group: int) -> None:
        if not group >> self.number & 1 or group >> self.config.cores:
            raise CommandError(ErrorCode.ILLEGAL_FIELD, Unit.BARRIER)

    def _written_locally(self, fields: CommandFields) -> tuple[LocalMemory, npt.NDArray[np.bool_]]:
        """Return the memory that a LOAD, FILL or COMPUTE writes, and the bytes of it."""
        if isinstance(fields, Compute):
            return LocalMemory.FEATURE, written_bytes(fields, self.config)
        scratch = {memory: np.zeros_like(array) for memory, array in self.memories.items()}
        if isinstance(fields, Fill):
            dma.fill(dataclasses.replace(fields, value=1), scratch[LocalMemory.FEATURE])
            return LocalMemory.FEATURE, scratch[LocalMemory.FEATURE] != 0
        assert isinstance(fields, Load), "what else writes a memory"
        dma.load(fields, np.ones_like(self._arena[self.number]), scratch, lanes=self.config.array.lanes)
        memory = find_memory(fields.memory)
        return memory, scratch[memory] != 0

    def _stored(self, fields: Store) -> npt.NDArray[np.bool_]:
        """Return the bytes of the arena that a STORE writes."""
        scratch = np.zeros_like(self._arena[self.number])
        dma.store(fields, scratch, np.ones_like(self.memories[LocalMemory.FEATURE]))
        return scratch != 0

    def _error(self, error: CommandError, index: int) -> MachineError:
        return MachineError(error.code, error.unit, index, error.address, self.number)


def _kind(opcode: Opcode) -> Opcode:
    """Return the opcode of the unit that executes a command: LOAD for a FILL too."""
    return Opcode.LOAD if opcode is Opcode.FILL else opcode
