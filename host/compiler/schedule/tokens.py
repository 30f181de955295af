"""Dependency tokens between the two queues, write-back hazards within the compute queue, and the deadlock check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ....golden.engines import find_engine, specification_of
from ....golden.isa import LIST_ENTRY_BYTES, Barrier, CommandFields, Compute, Load, Opcode
from ....golden.machine.write_back import EarlyReads, WriteBacks
from ....golden.memories import LocalMemory
from ....golden.numerics import windows
from ....golden.units import Queue
from ..network import CompileError
from ..operation import Command, Job, Operation, SyncedCommand
from ..plan import Computing, Loaded, Ordered, Placed, Scheduled
from ..storage import NO_ADDRESSES, Addresses, capacity, unit_count

# A COMPUTE command waits for earlier results only if it could read them before they are written back.


class WriteBackHazards:
    """The write-backs of a plan's compute queue, on the timeline of :mod:`lutterfly.golden.timing.write_back`, which
    programs may rely on.

    Commands of both queues are taken in an order in which they could run one by one.

    Parameters
    ----------
    plan : Loaded
    """

    def __init__(self, plan: Loaded):
        self._plan = plan
        self._write_backs = WriteBacks(plan.config)
        self._entries = np.zeros(plan.config.memory.list_entries, np.uint32)
        #: Time of each command so far at which its results are complete for verification.
        self._complete: list[int] = []
        self._list(plan.images.get(LocalMemory.LIST, b""), 0)

    def load(self, command: Command) -> None:
        """Take a LOAD, as step lists may be streamed."""
        fields = command.fields
        if isinstance(fields, Load) and fields.memory == LocalMemory.LIST:
            first = fields.external - self._plan.streamed_address
            self._list(self._plan.streamed[first : first + fields.piece_bytes], fields.local)

    def needs_after(self, command: Command, compared: int) -> bool:
        """Take a COMPUTE command, and return whether it has to wait for all commands before it.

        ``compared`` is the latest command after which verification compares the bytes that this one writes, -1 for
        none.
        """
        fields = command.fields
        assert isinstance(fields, Compute), "what is issued"
        issued, early = self._write_backs.foresee(fields, after=False)
        needs = compared >= 0 and self._complete[compared] > issued.begin
        needs = needs or self._reads_too_early(fields, early, command)
        if needs:
            issued, _ = self._write_backs.foresee(fields, after=True)
        self._write_backs.issue(fields, issued)
        self._complete.append(issued.complete)
        return needs

    def _reads_too_early(self, fields: Compute, early: EarlyReads, command: Command) -> bool:
        """Return whether a byte whose contents matter could be read, in any word, before it is written back."""
        number = early.windows
        if not len(number):
            return False
        config = self._plan.config
        size, read = config.memory.feature_bytes, specification_of(fields.engine).issue.steps_read(fields, config)
        offsets = windows.step_offsets(fields, self._entries, feature_bytes=size)
        starts = windows.loop_addresses(fields, "source").reshape(-1)[number, None] + offsets
        addresses = (starts[..., None] + np.arange(config.array.lanes)) % size
        matters, reads = np.zeros(size, np.bool_), command.reads
        matters[reads[reads < size]] = True
        too_early = early.too_early(addresses, early.cycles(fields, number)) & matters[addresses]
        return bool(too_early[:, :read].any())

    def _list(self, image: bytes, address: int) -> None:
        entries = np.frombuffer(image, "<u4")
        self._entries[address // LIST_ENTRY_BYTES :][: len(entries)] = entries


# Verification compares tensors in the feature memory, each after a certain command.
#
# Bytes that no layer reads, such as channels that a slice leaves out or columns that a stride skips, are compared too.
# So they must not be overwritten until then, although no command reads them.


def observed(plan: Placed) -> Iterator[tuple[str, int]]:
    """Yield the model's tensors that are computed and are whole in the feature memory, each with the last layer that
    writes it. Views of regions that another core computes are left out.
    """
    writers_of = plan.writers
    for name in dict.fromkeys([*plan.views, *(layer.output for layer in plan.graph.layers), *plan.roots]):
        tensor = plan.graph.tensors[name]
        place = plan.place_of(name)
        writers = [
            index
            for index in writers_of.get(place.tensor, ())
            for layer in [plan.graph.layers[index]]
            for other in [plan.place_of(layer.output)]
            if other.channel < place.channel + tensor.shape[2]
            and place.channel < other.channel + plan.graph.tensors[layer.output].shape[2]
        ]
        is_computed = writers and not any(plan.region_of(name).meet(part) for part in plan.arriving(place.tensor))
        if is_computed and place.tensor in plan.spans and tensor.views:
            yield name, writers[-1]


def observations(plan: Ordered) -> dict[Command, Addresses]:
    """Return, by command, the bytes of the feature memory that are compared when it has completed: int64[bytes]."""
    last = {command.layer: command for command in plan.commands if command.opcode is Opcode.COMPUTE}
    found: dict[Command, list[Addresses]] = {}
    for name, layer in observed(plan):
        found.setdefault(last[layer], []).append(plan.storages[name].addresses())
    return {command: np.concatenate(addresses) for command, addresses in found.items()}


def check_observed(plan: Scheduled) -> None:
    """Check that the DMA overwrites no byte before it has been compared."""
    observers = observations(plan)
    #: The COMPUTE command after which each byte is compared, and the latest one that the DMA queue has waited for.
    observer, done, index = np.full(unit_count(plan.config), -1), -1, -1
    for command in plan.commands:
        writes = command.writes
        if command.opcode is Opcode.COMPUTE:
            index += 1
            observer[writes] = -1
            observer[observers.get(command, NO_ADDRESSES)] = index
            continue
        done = max(done, -1 if command.waits_for is None else command.waits_for)
        needed = int(observer[writes].max(initial=-1))
        assert needed <= done, f"{command} overwrites what is compared after COMPUTE {needed}"
        observer[writes] = -1


# The deadlock check executes queues on tokens and barriers alone.

#: A queue of a core.
_Side = tuple[int, Queue]


def check_deadlock(plans: Sequence[Scheduled]) -> None:
    """Check that all queues of the first cores reach their end, with no token left.

    A step of one queue never disables a step of another: each token has one consumer, and a queue at a barrier waits
    there until all have arrived. So if all queues reach their end in one order, they do in every order. Cores of a
    group that are not checked count as present at barriers.
    """
    sides = [(core, queue) for core in range(len(plans)) for queue in Queue]
    commands = {(core, queue): plans[core].queue(queue) for core, queue in sides}
    position = dict.fromkeys(sides, 0)
    # Tokens that have been signalled to each queue and not yet consumed.
    tokens: Counter[_Side] = Counter()

    def step(side: _Side) -> bool:
        """Execute the next command of a queue, if it need not wait; all queues at a barrier continue together."""
        command = _next(side, commands, position, tokens)
        if command is None:
            return False
        together = [side]
        if isinstance(command.fields, Barrier):
            group = command.fields.group
            together = [(core, Queue.DMA) for core in range(len(plans)) if group >> core & 1]
            others = [_next(other, commands, position, tokens) for other in together]
            if not all(other is not None and _meets(other.fields, group) for other in others):
                return False
        for core, queue in together:
            done = commands[core, queue][position[core, queue]]
            tokens[core, queue] -= done.waits_for is not None
            tokens[core, queue.peer] += done.signal
            position[core, queue] += 1
        return True

    while any(step(side) for side in sides):
        pass
    assert all(position[side] == len(commands[side]) for side in sides), f"deadlock at {position}"
    assert not any(tokens.values()), f"tokens left: {tokens}"


def _meets(fields: CommandFields, group: int) -> bool:
    return isinstance(fields, Barrier) and fields.group == group


def _next(
    side: _Side,
    commands: Mapping[_Side, Sequence[SyncedCommand]],
    position: Mapping[_Side, int],
    tokens: Mapping[_Side, int],
) -> Command | None:
    """Return the next command of a queue, if the queue has the token that the command waits for."""
    own, index = commands[side], position[side]
    if index == len(own) or tokens[side] < (own[index].waits_for is not None):
        return None
    return own[index]


@dataclass
class _Known:
    """The state of one queue while its commands are taken in order.

    ``signals`` counts the commands of the other queue that wait for each of its commands so far.
    ``done`` and ``other_done`` are the latest commands of this and of the other queue that are complete when the
    present command begins, ``latest`` is the latest command of each kind, and ``compared`` is, for each byte, the
    command after which verification compares it.
    """

    size: int
    signals: list[int] = field(default_factory=list)
    latest: dict[Opcode, int] = field(default_factory=dict)
    done: int = -1
    other_done: int = -1
    knowledge: list[tuple[int, int]] = field(default_factory=list)
    last_write: Addresses = field(init=False)
    last_read: Addresses = field(init=False)
    compared: Addresses = field(init=False)

    def __post_init__(self) -> None:
        self.last_write, self.last_read, self.compared = (np.full(self.size, -1) for _ in range(3))


def synchronise(plan: Ordered) -> Scheduled:
    """Decide ``after``, ``waits_for`` and ``signal`` of all commands.

    Commands are taken in an order in which they could run one by one, so that commands only wait for earlier ones, and
    never in a circle. A command waits for the latest command of the other queue with a hazard: it writes bytes that
    this one reads or writes, or reads bytes that this one writes, or this one follows it, or verification compares
    after it the bytes that this one writes. Within the compute queue results are written back, and words are read, in
    order; so only reads of results that may still be under way, and writes of bytes that may still be compared, need
    ``after`` (:class:`WriteBackHazards`). Within the DMA queue the hardware separates loads and fills from stores, and
    a barrier from all commands.
    """
    queues = {name: _Known(unit_count(plan.config)) for name in Queue}
    compared, hazards = observations(plan), WriteBackHazards(plan)
    numbers: dict[Command, int] = {}
    #: Whether each command waits for all before it, and for which of the other queue.
    waits: list[tuple[bool, int | None]] = []
    for command in plan.commands:
        own, other = queues[command.queue], queues[command.queue.peer]
        index, reads, writes = len(own.signals), command.reads, command.writes
        waits_for, after = None, False

        needed = max(
            _latest(other.last_write, reads),
            _latest(other.last_write, writes),
            _latest(other.last_read, writes),
            -1 if command.follows is None else numbers[command.follows],
        )
        if needed > own.other_done:
            waits_for = needed
            other.signals[needed] += 1
            # A command that waits for another also knows what that one has waited for.
            own.other_done, own.done = needed, max(own.done, other.knowledge[needed][1])

        if command.opcode is Opcode.COMPUTE:
            # The write-backs are predicted without tokens.
            hazard = index if hazards.needs_after(command, _latest(own.compared, writes)) else -1
        elif command.opcode is Opcode.BARRIER:
            # A barrier begins when all commands before it have completed, and the next command begins after it.
            own.done, hazard = index - 1, -1
        elif command.opcode is Opcode.STORE:
            own.done = max(own.done, own.latest.get(Opcode.LOAD, -1), own.latest.get(Opcode.FILL, -1))
            hazard = -1
        else:
            hazards.load(command)
            own.done = max(own.done, own.latest.get(Opcode.STORE, -1))
            hazard = _latest(own.last_write, writes)
        if hazard > own.done:
            after = True
            own.done = index - 1

        own.last_read[reads] = index
        own.last_read[compared.get(command, NO_ADDRESSES)] = index
        own.last_write[writes] = index
        own.compared[writes] = -1
        own.compared[compared.get(command, NO_ADDRESSES)] = index
        own.knowledge.append((own.done, own.other_done))
        own.signals.append(0)
        numbers[command] = index
        own.latest[command.opcode] = index
        waits.append((after, waits_for))
    commands = [
        SyncedCommand.of(
            command, after=after, waits_for=waits_for, signal=queues[command.queue].signals[numbers[command]]
        )
        for command, (after, waits_for) in zip(plan.commands, waits, strict=True)
    ]
    return Scheduled.of_commands(plan, commands)


def check_tokens(plan: Scheduled) -> None:
    """Check that both queues reach their end, and that no byte is overwritten before verification has compared it."""
    check_deadlock([plan])
    check_observed(plan)


def _latest(by: np.ndarray, where: Addresses) -> int:
    return int(by[where].max(initial=-1))


# Every job becomes COMPUTE commands.


def lower(plan: Loaded) -> Computing:
    """Turn each job into its commands.

    Raises
    ------
    CompileError
        If a field of a layer's command is out of range.
    """
    return Computing.of(plan, computes=tuple(_lowered(plan.operations[job.index], job) for job in plan.jobs))


def _lowered(operation: Operation, job: Job) -> list[Command]:
    """Return the commands of a job, with the streamed constants that they read."""
    commands = operation.lower(job)
    for command in commands:
        _check_limits(operation.layer.name, command)
    if not len(job.streamed):
        return commands
    return [Command.of(command, reads=np.concatenate([command.reads, job.streamed])) for command in commands]


def check_lowered(plan: Computing) -> None:
    """Check that commands write all of their output and nothing else, and that their step lists exist."""
    written = [0] * len(plan.graph.layers)
    entries = capacity(plan.config, LocalMemory.LIST)
    for job, commands in zip(plan.jobs, plan.computes, strict=True):
        name = plan.graph.layers[job.index].name
        for command in commands:
            writes = command.writes
            written[job.index] += len(writes)
            fields = command.fields
            assert isinstance(fields, Compute), name
            assert fields.list + fields.steps <= entries, name
            assert job.target.address <= writes.min(), name
            assert writes.max() < job.target.address + job.target.size_bytes, name
    for layer, operation, count in zip(plan.graph.layers, plan.operations, written, strict=True):
        assert count == operation.written_bytes, layer.name


def _check_limits(layer: str, command: Command) -> None:
    assert isinstance(command.fields, Compute), layer
    for one in find_engine(command.fields.engine).format.fields:
        value, (low, high) = command.fields[one.name], one.limits
        if not low <= value <= high:
            raise CompileError(
                f"{layer}: {one.name} of its command must be between {low} and {high}, not {value}; "
                "split the layer into smaller ones"
            )
