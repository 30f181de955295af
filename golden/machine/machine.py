"""The golden machine: executes compiled programs on memory images, command by command, in any order the hardware may.

Unordered commands overlap in the hardware. Here the beginning and the completion of a command are two events, in an
order that the caller chooses. Between them everything that it writes is poisoned, and so is any input of it that the
other queue begins to write meanwhile. A program whose tokens and `after` flags are right gives the same bytes in every
order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .. import isa
from ..config import Config
from ..elements import run_bytes
from ..engines import find_memory, format_of
from ..engines.configurations import EngineConfigs
from ..isa import COMMAND_BYTES, Opcode
from ..memories import LocalMemory, memories
from ..program.program import Program
from ..program.queues import Queues
from ..program.tensors import SpilledTensor, WrittenTensor
from ..units import ErrorCode, Unit
from . import dma
from .command_error import CommandError
from .compute import compute_results, write_results, written_bytes
from .tensors import model_order, tensor_codes

UInt8 = npt.NDArray[np.uint8]
Memories = dict[LocalMemory, UInt8]
Observer = Callable[[int, UInt8], None]

ORDERS = ("dma-first", "compute-first", "random")


class MachineError(Exception):
    """A run that stopped, with the contents of the hardware's error registers.

    Attributes
    ----------
    code : ErrorCode
    unit : Unit
    index : int
        Of the command in its queue.
    address : int
        The address out of range; 0 where there is none.
    """

    def __init__(self, code: ErrorCode, unit: Unit, index: int, address: int = 0):
        super().__init__(f"{unit.name}: {code.name} in command {index} at address {address:#x}")
        self.code = code
        self.unit = unit
        self.index = index
        self.address = address


@dataclass(eq=False)
class _Flight:
    """A command between its beginning and its completion, with the memories as it sees them."""

    index: int
    opcode: Opcode
    fields: dict[str, int]
    memories: Memories
    read: UInt8 | None = None


@dataclass(eq=False)
class _Queue:
    unit: Unit
    opcodes: tuple[Opcode, ...]
    engines: EngineConfigs
    commands: bytes
    next: int = 0
    tokens: int = 0
    done: bool = False
    flights: deque[_Flight] = field(default_factory=deque)

    def peek(self) -> tuple[Opcode, dict[str, int]]:
        """Opcode and fields of the next command, checked as the hardware's queue does."""
        command = self.commands[self.next * COMMAND_BYTES : (self.next + 1) * COMMAND_BYTES]
        if len(command) < COMMAND_BYTES:
            raise MachineError(ErrorCode.PROGRAM_END, self.unit, self.next)
        code = command[0] & 15
        if code not in self.opcodes:
            raise MachineError(ErrorCode.ILLEGAL_OPCODE, self.unit, self.next)
        opcode = Opcode(code)
        engine = isa.COMPUTE.decode(command)["engine"]
        if opcode is Opcode.COMPUTE and engine not in self.engines:
            raise MachineError(ErrorCode.ILLEGAL_ENGINE, self.unit, self.next)
        fmt = format_of(opcode, engine)
        fields = fmt.decode(command)
        if fmt.encode(**{**fields, "reserved": 0}) != command:
            raise MachineError(ErrorCode.ILLEGAL_FIELD, self.unit, self.next)
        return opcode, fields


class Machine:
    """The memories of one accelerator, and the execution of programs on them.

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
        sides = {}
        for name, unit, opcodes in (
            ("dma", Unit.DMA_QUEUE, isa.DMA_OPCODES),
            ("compute", Unit.COMPUTE_QUEUE, isa.COMPUTE_OPCODES),
        ):
            start, size = getattr(queues, f"{name}_address"), len(getattr(queues, name))
            sides[name] = _Queue(unit, opcodes, self.config.engines, arena[start : start + size].tobytes())
        first, second = (
            (sides["compute"], sides["dma"]) if order == "compute-first" else (sides["dma"], sides["compute"])
        )
        other = {first: second, second: first}

        while not (first.done and second.done):
            events = [(self._begin, queue) for queue in (first, second) if self._may_begin(queue)]
            events += [(self._complete, queue) for queue in (first, second) if queue.flights]
            if not events:
                stuck = sides["dma"] if sides["compute"].done else sides["compute"]
                raise MachineError(ErrorCode.WATCHDOG, stuck.unit, stuck.next)
            event, queue = events[self._rng.integers(len(events)) if order == "random" else 0]
            event(queue, other[queue], arena, observe)
        for queue in sides.values():
            if queue.tokens:
                raise MachineError(ErrorCode.TOKENS_LEFT, queue.unit, queue.next - 1)

    def run_prologue(self, program: Program, arena: UInt8, *, order: str = "dma-first") -> None:
        """Load what stays resident."""
        self.run(program.prologue, arena, order=order)

    def run_body(self, program: Program, arena: UInt8, *, order: str = "dma-first") -> dict[str, npt.NDArray[np.int8]]:
        """Run one inference; returns every tensor that leaves the array, int8[height, width, channels], by name."""
        completed_by: dict[int, list[WrittenTensor]] = {}
        for tensor in program.written:
            completed_by.setdefault(tensor.command, []).append(tensor)
        tensors = {}

        def observe(index: int, feature: UInt8) -> None:
            for tensor in completed_by.get(index, ()):
                tensors[tensor.name] = read_tensor(tensor, feature)

        self.run(program.body, arena, order=order, observe=observe)
        return tensors | {tensor.name: read_spilled(tensor, arena) for tensor in program.spilled}

    def _may_begin(self, queue: _Queue) -> bool:
        if queue.done:
            return False
        opcode, fields = queue.peek()
        if fields["wait"] > queue.tokens or (queue.flights and (fields["after"] or opcode is Opcode.END)):
            return False
        # Loads and fills share a unit; a store waits for them, and they for stores.
        stores = {flight.opcode is Opcode.STORE for flight in queue.flights if flight.opcode is not Opcode.SYNC}
        return opcode in (Opcode.SYNC, Opcode.END, Opcode.COMPUTE) or stores <= {opcode is Opcode.STORE}

    def _begin(self, queue: _Queue, other: _Queue, arena: UInt8, _observe: Observer | None) -> None:
        opcode, fields = queue.peek()
        queue.tokens -= fields["wait"]
        index = queue.next
        queue.next += 1
        if opcode is Opcode.END:
            queue.done = True
            other.tokens += fields["signal"]
            return
        flight = _Flight(index, opcode, fields, self.memories)
        if opcode in (Opcode.COMPUTE, Opcode.STORE):
            flight.memories = {memory: array.copy() for memory, array in self.memories.items()}
        try:
            if opcode is Opcode.STORE:
                self._scramble(arena, _written_by_store(fields, arena, self.memories[LocalMemory.FEATURE]))
            elif opcode is not Opcode.SYNC:
                memory, written = self._written_locally(opcode, fields, arena)
                for image in (
                    self.memories,
                    *(flight.memories for flight in other.flights if flight.memories is not self.memories),
                ):
                    self._scramble(image[memory], written)
        except CommandError as error:
            raise MachineError(error.code, error.unit, index, error.address) from error
        queue.flights.append(flight)

    def _complete(self, queue: _Queue, other: _Queue, arena: UInt8, observe: Observer | None) -> None:
        flight = queue.flights.popleft()
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
        other.tokens += flight.fields["signal"]

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


def new_arena(program: Program) -> UInt8:
    """External memory with the commands and constants of a program, uint8[arena_bytes]; the rest is zero."""
    arena = np.zeros(program.arena_bytes, np.uint8)
    parts = [(program.constants_address, program.constants)]
    for queues in (program.prologue, program.body):
        parts += [(queues.dma_address, queues.dma), (queues.compute_address, queues.compute)]
    for address, data in parts:
        arena[address : address + len(data)] = np.frombuffer(data, np.uint8)
    return arena


def read_tensor(tensor: WrittenTensor, feature: UInt8) -> npt.NDArray[np.int8]:
    """The tensor that lies in the feature memory uint8[feature_bytes]: a copy, int8[height, width, channels]."""
    height, width, channels = tensor.shape
    y, x, byte = np.ogrid[:height, :width, : run_bytes(channels, tensor.bits)]
    image = feature[tensor.address + y * tensor.row_pitch + x * tensor.pixel_pitch + byte]
    return model_order(tensor_codes(image, tensor.shape, tensor.bits), tensor.order)


def read_spilled(tensor: SpilledTensor, arena: UInt8) -> npt.NDArray[np.int8]:
    """The tensor that lies in the arena uint8[arena_bytes]: a copy, int8[height, width, channels]."""
    return spilled_codes(tensor, arena[tensor.address : tensor.address + tensor.size_bytes].copy())


def spilled_codes(tensor: SpilledTensor, data: UInt8) -> npt.NDArray[np.int8]:
    """The tensor from its bytes in the arena: int8[height, width, channels]."""
    return model_order(tensor_codes(data, tensor.shape, tensor.bits), tensor.order)


def _written_by_store(fields: dict[str, int], arena: UInt8, feature: UInt8) -> npt.NDArray[np.bool_]:
    scratch = np.zeros_like(arena)
    dma.store(fields, scratch, np.ones_like(feature))
    return scratch != 0
