"""The golden machine: executes compiled programs on memory images, command by command, in any order the hardware may.

Unordered commands overlap in the hardware. Here the beginning and the completion of a command are two events, in an
order that the caller chooses. Between them everything that it writes is poisoned, and so is any input of it that the
other queue begins to write meanwhile. A program whose tokens and `after` flags are right gives the same bytes in every
order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..config import Config
from ..engines import find_memory
from ..isa import Opcode
from ..memories import LocalMemory, memories
from ..program.program import Program
from ..program.queues import Queues
from ..program.tensors import WrittenTensor
from ..units import ErrorCode, Queue
from . import dma
from .command_error import CommandError
from .compute import compute_results, write_results, written_bytes
from .flights import CommandQueue, Flight, MachineError, Memories
from .images import read_spilled, read_tensor

UInt8 = npt.NDArray[np.uint8]
Observer = Callable[[int, UInt8], None]

ORDERS = ("dma-first", "compute-first", "random")


class Machine:
    """The memories of a core, and the execution of programs on them.

    Parameters
    ----------
    config : Config
    seed : int
        For the initial contents of the memories, the poison, and the order ``random``.

    Attributes
    ----------
    memories : dict of LocalMemory to uint8[size_bytes]
        Those that the configuration has; they keep their contents from run to run.
    """

    def __init__(self, config: Config, *, seed: int = 0):
        self.config = config
        self._rng = np.random.default_rng(seed)
        self._queues: dict[Queue, CommandQueue] = {}
        #: Tokens that are given and not taken, of each pair of peers: giver, taker.
        self._tokens: Counter[tuple[Queue, Queue]] = Counter()
        self.memories: Memories = {
            memory: self._rng.integers(0, 256, config.size_bytes(memory), dtype=np.uint8) for memory in memories(config)
        }

    def run(self, queues: Queues, arena: UInt8, *, order: str = "dma-first", observe: Observer | None = None) -> None:
        """Execute one run of both queues.

        Parameters
        ----------
        queues : Queues
            Where the commands lie in the arena, and how many there are.
        arena : uint8[arena_bytes]
            External memory, read and written.
        order : str
            ``"dma-first"``: the DMA queue begins what it can before the compute queue begins anything, and commands
            complete as late as possible; ``"compute-first"``: the other way round; ``"random"``: any possible event may
            be next.
        observe : callable
            Called with a compute command's index and the feature memory when that command has completed.

        Raises
        ------
        MachineError
            If the hardware would stop with an error, or would wait for tokens for ever.
        ValueError
            If ``order`` is not one of these.
        """
        if order not in ORDERS:
            raise ValueError(f"order must be one of {', '.join(ORDERS)}, not {order}")
        for queue in Queue:
            start, size = queues[queue].address, len(queues[queue].commands)
            commands = arena[start : start + size].tobytes()
            self._queues[queue] = CommandQueue(queue, self.config.engines, commands)
        self._tokens.clear()
        # Where both can go on, the first one does.
        sides = [self._queues[queue] for queue in (reversed(Queue) if order == "compute-first" else Queue)]

        while not all(side.done for side in sides):
            events = [(self._begin, side) for side in sides if self._may_begin(side)]
            events += [(self._complete, side) for side in sides if side.flights]
            if not events:
                stuck = next(side for side in (self._queues[queue] for queue in reversed(Queue)) if not side.done)
                raise MachineError(ErrorCode.WATCHDOG, stuck.queue.unit, stuck.next)
            event, side = events[self._rng.integers(len(events)) if order == "random" else 0]
            event(side, arena, observe)
        for queue in Queue:
            if self._tokens[queue.peer, queue]:
                raise MachineError(ErrorCode.TOKENS_LEFT, queue.unit, self._queues[queue].next - 1)

    def run_prologue(self, program: Program, arena: UInt8, *, order: str = "dma-first") -> None:
        """Load what stays resident."""
        self.run(program.core.prologue, arena, order=order)

    def run_body(self, program: Program, arena: UInt8, *, order: str = "dma-first") -> dict[str, npt.NDArray[np.int8]]:
        """Run one inference; returns every tensor that leaves the array, int8[height, width, channels], by name."""
        completed_by: dict[int, list[WrittenTensor]] = {}
        for tensor in program.core.written:
            completed_by.setdefault(tensor.command, []).append(tensor)
        tensors = {}

        def observe(index: int, feature: UInt8) -> None:
            for tensor in completed_by.get(index, ()):
                tensors[tensor.name] = read_tensor(tensor, feature)

        self.run(program.core.body, arena, order=order, observe=observe)
        return tensors | {tensor.name: read_spilled(tensor, arena) for tensor in program.spilled}

    def _may_begin(self, side: CommandQueue) -> bool:
        if side.done:
            return False
        opcode, fields = side.peek()
        if fields["wait"] > self._tokens[side.queue.peer, side.queue]:
            return False
        if side.flights and (fields["after"] or opcode is Opcode.END):
            return False
        # Loads and fills share a unit; a store waits for them, and they for stores.
        stores = {flight.opcode is Opcode.STORE for flight in side.flights if flight.opcode is not Opcode.SYNC}
        return opcode in (Opcode.SYNC, Opcode.END, Opcode.COMPUTE) or stores <= {opcode is Opcode.STORE}

    def _begin(self, side: CommandQueue, arena: UInt8, _observe: Observer | None) -> None:
        opcode, fields = side.peek()
        self._tokens[side.queue.peer, side.queue] -= fields["wait"]
        index = side.next
        side.next += 1
        if opcode is Opcode.END:
            side.done = True
            self._tokens[side.queue, side.queue.peer] += fields["signal"]
            return
        flight = Flight(index, opcode, fields, self.memories)
        if opcode in (Opcode.COMPUTE, Opcode.STORE):
            flight.memories = {memory: array.copy() for memory, array in self.memories.items()}
        try:
            if opcode is Opcode.STORE:
                self._scramble(arena, _written_by_store(fields, arena, self.memories[LocalMemory.FEATURE]))
            elif opcode is not Opcode.SYNC:
                memory, written = self._written_locally(opcode, fields, arena)
                begun = (flight.memories for flight in self._queues[side.queue.peer].flights)
                for image in (self.memories, *(own for own in begun if own is not self.memories)):
                    self._scramble(image[memory], written)
        except CommandError as error:
            raise MachineError(error.code, error.unit, index, error.address) from error
        side.flights.append(flight)

    def _complete(self, side: CommandQueue, arena: UInt8, observe: Observer | None) -> None:
        flight = side.flights.popleft()
        feature = self.memories[LocalMemory.FEATURE]
        if flight.opcode is Opcode.LOAD:
            dma.load(flight.fields, arena, self.memories, lanes=self.config.array.lanes)
        elif flight.opcode is Opcode.FILL:
            dma.fill(flight.fields, feature)
        elif flight.opcode is Opcode.STORE:
            dma.store(flight.fields, arena, flight.memories[LocalMemory.FEATURE])
        elif flight.opcode is Opcode.COMPUTE:
            try:
                results = compute_results(flight.fields, flight.memories, self.config, self._rng)
            except CommandError as error:
                raise MachineError(error.code, error.unit, flight.index, error.address) from error
            write_results(flight.fields, results, feature, self.config)
            if observe is not None:
                observe(flight.index, feature)
        self._tokens[side.queue, side.queue.peer] += flight.fields["signal"]

    def _written_locally(
        self, opcode: Opcode, fields: dict[str, int], arena: UInt8
    ) -> tuple[LocalMemory, npt.NDArray[np.bool_]]:
        """Which bytes of which memory a LOAD, FILL or COMPUTE writes."""
        if opcode is Opcode.COMPUTE:
            return LocalMemory.FEATURE, written_bytes(fields, self.config)
        scratch = {memory: np.zeros_like(array) for memory, array in self.memories.items()}
        if opcode is Opcode.FILL:
            dma.fill({**fields, "value": 1}, scratch[LocalMemory.FEATURE])
            return LocalMemory.FEATURE, scratch[LocalMemory.FEATURE] != 0
        dma.load(fields, np.ones_like(arena), scratch, lanes=self.config.array.lanes)
        memory = find_memory(fields["memory"])
        return memory, scratch[memory] != 0

    def _scramble(self, image: UInt8, where: npt.NDArray[np.bool_]) -> None:
        """Change every byte of ``image`` that the mask selects."""
        image[where] ^= self._rng.integers(1, 256, np.count_nonzero(where), dtype=np.uint8)


def _written_by_store(fields: dict[str, int], arena: UInt8, feature: UInt8) -> npt.NDArray[np.bool_]:
    scratch = np.zeros_like(arena)
    dma.store(fields, scratch, np.ones_like(feature))
    return scratch != 0
