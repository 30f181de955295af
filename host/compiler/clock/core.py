"""Timing of a core: its two queues, the fetch of commands, and the issue and completion of commands."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ....golden.config import Config
from ....golden.engines import specification_of
from ....golden.isa import Barrier, Compute, Opcode
from ....golden.timing.issue import command_parts, issue_rounds, issue_steps
from ....golden.timing.latencies import (
    PAUSES_HIDDEN,
    STEPS_AHEAD,
    WORDS_AHEAD,
    backlog_limit,
    command_beats,
    command_cycles,
    commands_at_once,
    result_latency,
)
from ....golden.timing.overheads import OVERHEADS
from ....golden.timing.write_back import lead
from ....golden.units import Queue
from ..operation import SyncedCommand
from .buses import Agenda, Barriers, Events, MemoryPort, Process, Reads, Rounds, Run, Signal, Wait
from .dma import LoadClock, Send, StoreClock

# Timing of the command rings, and of the prefetcher that fills them.


class Ring:
    """The ring of one queue, for a program that is longer than the ring.

    Parameters
    ----------
    agenda : Agenda
    config : Config
    commands : int
        Number of commands, END included.

    Attributes
    ----------
    room : Events
        Times at which there is room for each command.
    arrived : Events
        Times at which each command's last word arrives.
    started : Events
        Times from which the queue may read each command.
    asked : int
        Number of commands that have been requested.
    offers : int
        Number of commands in the burst that waits for the prefetcher.
    taken : Signal
        Fired when the prefetcher takes the burst.
    """

    def __init__(self, agenda: Agenda, config: Config, commands: int):
        self.agenda, self.commands = agenda, commands
        self.beats = command_beats(config)
        # A burst may hold two commands, of which the first has an even number.
        self.pairs = commands_at_once(config) > 1
        self.room = Events(agenda, array("q", [0] * config.resident_commands))
        self.arrived, self.started = Events(agenda), Events(agenda)
        self.asked, self.offers, self.taken = 0, 0, Signal()

    def ask(self, fetcher: Signal) -> Process:
        """Offer bursts to the prefetcher as long as there are commands to fetch, and room for them."""
        measured = OVERHEADS.first_fetch
        while self.asked < self.commands:
            # The ring looks for room every other cycle.
            measured += max((yield from self.room.of(self.asked)) - measured + 1, 0) // 2 * 2
            yield measured
            following = self.asked + 1
            is_pair = (
                self.pairs
                and self.asked % 2 == 0
                and following < min(self.commands, len(self.room.times))
                and self.room.times[following] <= measured
            )
            yield measured + OVERHEADS.fetch - 2
            self.offers = 1 + is_pair
            self.agenda.fire(fetcher)
            while self.offers:
                yield self.taken
            measured = self.agenda.now + 2

    def read(self) -> Process:
        """Make room: a word leaves the ring once the word ``WORDS_AHEAD`` before it has left for the queue."""
        for index in range(self.commands):
            number, word = divmod((index + 1) * self.beats - 1 - WORDS_AHEAD, self.beats)
            left = 0
            if number >= 0:
                begin = (yield from self.started.of(number)) + 1
                end = (yield from self.arrived.of(number)) + OVERHEADS.fetched - OVERHEADS.command
                left = max(begin + word, end + 1 - self.beats + word)
            arrived = yield from self.arrived.of(index)
            self.room.add(max(left + OVERHEADS.read_next, arrived + OVERHEADS.read_first))


class Fetch:
    """The fetch of the commands of both queues. Programs that fit their rings are resident, and nothing is fetched.

    Parameters
    ----------
    agenda : Agenda
    bus : Reads
    config : Config
    commands : dict of Queue to int
        Number of commands of each queue, END included.
    last : Queue
        The ring that was served last in the run before this one; the other one goes first.
    """

    def __init__(self, agenda: Agenda, bus: Reads, config: Config, commands: dict[Queue, int], last: Queue):
        self.agenda, self.bus, self.config = agenda, bus, config
        self.served, self.offered = last, Signal()
        self.rings = {
            queue: Ring(agenda, config, count) for queue, count in commands.items() if count > config.resident_commands
        }
        #: Ring and number of commands of each burst, and the time at which it begins on the bus.
        self.bursts: list[tuple[Ring, int]] = []
        self.begins = Events(agenda)

    def start(self) -> None:
        """Begin to fetch."""
        for ring in self.rings.values():
            self.agenda.start(ring.ask(self.offered), 0)
            self.agenda.start(ring.read(), 0)
        self.agenda.start(self._serve(), 1)
        self.agenda.start(self._arrive(), 1)

    def arrival(self, queue: Queue, index: int, begun: int) -> Generator[Wait, None, int]:
        """Wait until the time is known at which a queue has a command, and return it. The queue reads the command when
        the one before has ``begun``."""
        ring = self.rings.get(queue)
        if ring is None:
            return 0
        ring.started.add(begun)
        return (yield from ring.arrived.of(index)) + OVERHEADS.fetched

    def _serve(self) -> Process:
        """Take the bursts of the rings, alternating where both have one."""
        while any(ring.asked < ring.commands for ring in self.rings.values()):
            offers = [queue for queue, ring in self.rings.items() if ring.offers]
            if not offers:
                yield self.offered
                continue
            held_until = (
                (yield from self._ended(len(self.bursts) - self.config.axi.outstanding)) + OVERHEADS.refetch - 2
            )
            if held_until > self.agenda.now:
                yield held_until
                continue
            self.served = next((queue for queue in offers if queue is not self.served), self.served)
            ring = self.rings[self.served]
            count, ring.offers = ring.offers, 0
            ring.asked += count
            self.agenda.fire(ring.taken)
            self.bursts.append((ring, count))
            yield (yield from self.bus.take(self.agenda.now, count * ring.beats, self.begins)) + 2

    def _arrive(self) -> Process:
        """Record the arrival of commands in the rings."""
        number = 0
        while True:
            first = yield from self.begins.of(number)
            ring, count = self.bursts[number]
            ring.arrived.add(*(first + (command + 1) * ring.beats for command in range(count)))
            number += 1

    def _ended(self, number: int) -> Generator[Wait, None, int]:
        """Wait until the end of a burst on the bus is known, and return it; zero if there is no such burst."""
        if number < 0:
            return 0
        ring, count = self.bursts[number]
        return (yield from self.begins.of(number)) + count * ring.beats + 1


# The cycles in which windows of a COMPUTE command occupy the two ports of the feature memory.


@dataclass(frozen=True, slots=True)
class Part:
    """Equal windows of a command, or equal rows of windows.

    Attributes
    ----------
    begin : int
        The cycle of the first issue.
    backlog : int
        Cycles that the results of earlier windows still take at that time.
    windows : list of (int, int)
        Number of steps of each window of a round, and of groups of its results.
    rounds : int
    begins : bool
        Whether the first window is the first one of the command.
    hidden : int
        See :func:`hide`.
    limit : int
        See :func:`~lutterfly.golden.timing.latencies.backlog_limit`.
    is_burst : bool
        Whether each window is a burst.
    unread : int
        Number of steps of a window that do not read.
    pieces : list of list of int
        For each window of a round, the groups that complete a piece, which is then written.
    latency : int
        Cycles from a window's last issue to the first issue that may read its result.
    """

    begin: int
    backlog: int
    windows: list[tuple[int, int]]
    rounds: int
    begins: bool
    hidden: int
    limit: int
    is_burst: bool
    unread: int
    pieces: list[list[int]]
    latency: int

    def issue(self) -> Iterator[tuple[int, int, list[tuple[int, int]], int]]:
        """Yield rounds: begin of the first, number of rounds, and issue and backlog of
        ``golden.timing.issue.issue_rounds``."""
        begin = self.begin
        steps = sum(steps for steps, _ in self.windows)
        for count, issued, backlog in issue_rounds(
            *(self.backlog, self.windows, self.rounds),
            limit=self.limit,
            begins=self.begins,
            is_burst=self.is_burst,
        ):
            yield begin, count, issued, backlog
            begin += count * (steps + sum(hold for hold, _ in issued))

    def last_steps(self, begin: int, count: int, issued: list[tuple[int, int]], most: int) -> list[int]:
        """Return the issue times of the last steps of rounds, at most ``most`` of them, in order."""
        found: list[int] = []
        end = begin + count * (sum(steps for steps, _ in self.windows) + sum(hold for hold, _ in issued))
        while end > begin and len(found) < most:
            for (steps, _), (hold, _) in zip(reversed(self.windows), reversed(issued), strict=True):
                # The gate holds the last step of a window, or the first step of a burst.
                last = 0 if self.is_burst else 1
                found += [end - 1 - step - (hold if last and step else 0) for step in range(min(steps, most))]
                end -= steps + hold
        return found[most - 1 :: -1] if len(found) >= most else found[::-1]

    def reads(self) -> Iterator[Rounds]:
        """Yield the cycles of the steps that read."""
        for begin, count, issued, _ in self.issue():
            runs: list[Run] = []
            at = 0
            for (steps, _), (hold, _) in zip(self.windows, issued, strict=True):
                if self.is_burst:
                    taken = [(at + hold, steps - self.unread)]
                elif hold:
                    taken = [(at, steps - 1), (at + hold + steps - 1, 1)]
                else:
                    taken = [(at, steps)]
                for first, length in taken:
                    if runs and sum(runs[-1]) == first:
                        runs[-1] = (runs[-1][0], runs[-1][1] + length)
                    elif length:
                        runs.append((first, length))
                at += hold + steps
            yield Rounds(begin, at, count, tuple(runs))

    def writes(self) -> Iterator[Rounds]:
        """Yield the cycles in which pieces are written."""
        begins, hidden = self.begins, self.hidden
        for begin, count, issued, _ in self.issue():
            pieces, at = [], begin
            for (steps, _), own, (hold, waiting) in zip(self.windows, self.pieces, issued, strict=True):
                counted = at + hold + (0 if self.is_burst else steps - 1)
                hidden = hide(hidden, waiting, begins=begins)
                first = counted + max(waiting, 1) + begins - hidden - 1 + self.latency
                begins = False
                pieces += [first + group for group in own]
                at += hold + steps
            runs = tuple((piece - pieces[0], 1) for piece in pieces)
            yield Rounds(pieces[0], at - begin if count > 1 else runs[-1][0] + 1, count, runs)


def hide(hidden: int, waiting: int, *, begins: bool) -> int:
    """Return the cycles by which results of a window come earlier than the issue gate predicts. There is a pause of one
    cycle between commands whose results wait; some of these are hidden, as groups are found ahead. But no result comes
    before it has passed the pipeline, so that a result that hardly waits gains less."""
    return min(hidden + begins, max(waiting, 1) - 1 + begins, PAUSES_HIDDEN)


def pieces(fields: Compute, windows: list[tuple[int, int]], config: Config) -> list[list[int]]:
    """Return the groups that complete a piece, for each window of a command; ``windows`` are steps and groups of
    each."""
    spec = specification_of(fields.engine)
    slots = 1 if spec.epilogue_of(fields).is_whole else config.array.columns // config.array.requant_lanes
    results = spec.issue.results(fields)
    counts = [groups // results for _, groups in windows]
    # Most windows have equal numbers of groups.
    found = {
        count: [
            result * count + min(group + slots, count) - 1
            for result in range(results)
            for group in range(0, count, slots)
        ]
        for count in {*counts}
    }
    return [found[count] for count in counts]


# Timing of the compute queue.

#: First and last issue of a command.
Issues = tuple[int, int]


@dataclass
class ComputeClock:
    """Timing of the compute unit.

    Attributes
    ----------
    completed : Events
        Commands of the compute queue.
    issues : list of Issues
    latest : deque of int
        Issue times of the last steps so far, as many as the walker may be ahead.
    reads, writes : MemoryPort
        Ports of the feature memory. A read is entered in the cycle of its issue, a write in the cycle of the first
        issue that may read it.
    accepts : int
        Time at which the unit can accept the next command.
    walked, written_back, backlog, hidden, before
        State after the last command: end of its walk, time from which its results may be read, cycles that its results
        still take, hidden pauses between commands, and its fields.
    """

    config: Config
    completed: Events
    issues: list[Issues] = field(default_factory=list)
    latest: deque[int] = field(default_factory=lambda: deque(maxlen=STEPS_AHEAD))
    reads: MemoryPort = field(default_factory=MemoryPort)
    writes: MemoryPort = field(default_factory=MemoryPort)
    accepts: int = 0
    walked: int = 0
    written_back: int = 0
    backlog: int = 0
    hidden: int = 0
    before: Compute | None = None

    def run(self, command: SyncedCommand, accepted: int) -> None:
        """Run the next command, which the unit has accepted at ``accepted``."""
        fields, config = command.fields, self.config
        assert isinstance(fields, Compute), "what the unit runs"
        taken = max(accepted + OVERHEADS.intake, self.walked + 1)
        # One command waits in the unit while the one before it is walked.
        self.accepts = taken + 2
        after = self.issues[-1][1] + 1 if self.issues else 0
        first = max(after, taken + OVERHEADS.issue)
        spec = specification_of(fields.engine)
        ahead = None if self.before is None else lead(config, fields, self.before, after=command.after)
        if ahead is not None:
            first = max(first, self.written_back - ahead)
        self.backlog = max(self.backlog - (first - after), 0)
        self.before = fields
        latency = result_latency(config, fields)
        limit = backlog_limit(config, fields.engine)
        unread = fields.steps - spec.issue.steps_read(fields, config)
        now = first
        for windows, rounds in command_parts(fields, config):
            begins, row = now == first, sum(steps for steps, _ in windows)
            part = Part(
                *(now, self.backlog, windows, rounds, begins, self.hidden, limit, spec.issue.is_burst),
                *(unread, pieces(fields, windows, config), latency),
            )
            for begin, count, issued, self.backlog in part.issue():
                self.latest.extend(part.last_steps(begin, count, issued, STEPS_AHEAD))
                now = begin + count * (row + sum(hold for hold, _ in issued))
                waits = [waiting for _, waiting in issued]
                if begins:
                    self.hidden, begins = hide(self.hidden, waits[0], begins=True), False
                    waits = waits[1:]
                self.hidden = min([self.hidden, *waits])
            # The groups that wait before the last window's last group add to the latency of a group.
            self.written_back = now - 1 + latency + self.backlog - 1
            self.reads.take(now, part.reads)
            self.writes.take(self.written_back + 1, part.writes)
        self.issues.append((first, now - 1))
        # The walker is ahead of the issue by at most the registers between them, the gate's own included.
        self.walked = max(taken + issue_steps(fields), self.latest[0] if len(self.latest) == STEPS_AHEAD else 0)
        self.completed.add(self.written_back - self.hidden + OVERHEADS.completion)


@dataclass(frozen=True)
class CoreContext:
    """The surroundings of a core: bus, other cores, barriers.

    Attributes
    ----------
    agenda : Agenda
    bus : Reads
    send : Send or None
        Sends bursts where cores share the pins of the write channels.
    barriers : Barriers
    """

    agenda: Agenda
    bus: Reads
    send: Send | None
    barriers: Barriers


class CoreClock:
    """Both queues of a core, and their units. Times are cycles from the start of the run.

    Parameters
    ----------
    config : Config
    number : int
        Of the core.
    commands : sequence of SyncedCommand
        The commands of both queues, in an order in which they could run one by one.
    around : CoreContext
    last : Queue
        The queue whose commands the run before this one fetched last.
    """

    def __init__(
        self, config: Config, number: int, commands: Sequence[SyncedCommand], around: CoreContext, *, last: Queue
    ):
        self.config, self.number = config, number
        self.commands: dict[Queue, list[SyncedCommand]] = {queue: [] for queue in Queue}
        for command in commands:
            self.commands[command.queue].append(command)
        counts = {queue: len(own) + 1 for queue, own in self.commands.items()}
        self.agenda, self.barriers = around.agenda, around.barriers
        self.fetch = Fetch(self.agenda, around.bus, config, counts, last=last)
        self.done = {queue: Events(self.agenda) for queue in Queue}
        self.compute = ComputeClock(config, self.done[Queue.COMPUTE])
        self.load = LoadClock(self.agenda, config, around.bus, self.compute.writes, self.done[Queue.DMA])
        self.store = StoreClock(self.agenda, config, self.compute.reads, self.done[Queue.DMA], around.send)
        #: When the units have got the commands of the DMA queue; when both queues have ended.
        self.given = array("q")
        self.ends: list[int] = []

    def start(self) -> None:
        """Begin the run."""
        self.fetch.start()
        self.load.start()
        self.store.start()
        self.agenda.start(self._run_compute(), 2)
        self.agenda.start(self._run_dma(), 2)

    @property
    def end(self) -> int:
        """The time at which the last command has completed."""
        assert len(self.ends) == len(Queue), f"core {self.number} waits for ever"
        return max(self.ends)

    @property
    def times(self) -> Mapping[Queue, Iterable[tuple[int, int]]]:
        """When each command of a queue begins and completes."""
        first_issues = (first for first, _ in self.compute.issues)
        begins = {Queue.DMA: iter(self.given), Queue.COMPUTE: first_issues}
        return {queue: zip(begins[queue], self.done[queue].times, strict=True) for queue in Queue}

    def _run_compute(self) -> Process:
        unit, before = self.compute, OVERHEADS.start
        for index, command in enumerate(self.commands[Queue.COMPUTE]):
            arrival = yield from self.fetch.arrival(Queue.COMPUTE, index, before if index else 0)
            allowed = 0
            if command.waits_for is not None:
                allowed = (yield from self.done[Queue.DMA].of(command.waits_for)) + OVERHEADS.token
            before = max(before + command_cycles(self.config), unit.accepts, allowed, arrival)
            if not self.agenda.is_next(before):
                yield before
            unit.run(command, before)
        yield from self._end(Queue.COMPUTE, before)

    def _run_dma(self) -> Process:
        before, kind = OVERHEADS.start, None
        for index, command in enumerate(self.commands[Queue.DMA]):
            arrival = yield from self.fetch.arrival(Queue.DMA, index, before if index else 0)
            allowed, last = 0, kind
            kind = Opcode.LOAD if command.opcode is Opcode.FILL else command.opcode
            if command.waits_for is not None:
                allowed = (yield from self.done[Queue.COMPUTE].of(command.waits_for)) + OVERHEADS.token
            if index and (command.after or kind is not last or kind is Opcode.BARRIER):
                # LOAD and FILL never work beside STORE, and nothing beside a BARRIER.
                allowed = max(allowed, (yield from self.done[Queue.DMA].of(index - 1)) + OVERHEADS.turn)
            units: dict[Opcode, LoadClock | StoreClock] = {Opcode.LOAD: self.load, Opcode.STORE: self.store}
            unit = units.get(kind)
            if unit is not None:
                allowed = max(allowed, (yield from unit.accepts()))
            before = max(before + command_cycles(self.config), allowed, arrival)
            if not self.agenda.is_next(before):
                yield before
            self.given.append(before)
            if unit is not None:
                unit.accept(command, before)
                continue
            assert isinstance(command.fields, Barrier), "what no unit executes"
            self.done[Queue.DMA].add((yield from self.barriers.meet(self.number, command.fields.group, before)))
        yield from self._end(Queue.DMA, before)

    def _end(self, queue: Queue, before: int) -> Process:
        """Complete END after all that it waits for."""
        count = len(self.commands[queue])
        arrival = yield from self.fetch.arrival(queue, count, before if count else 0)
        completed = yield from self.done[queue].of(count - 1)
        self.ends.append(max(arrival - 2, completed))
