"""Cycles: the latencies that hardware and compiler share, and how long transfers and windows take.

Latencies that belong to one component are numbers of this module too, and those of engines stand in their
specifications, so that the prediction needs no hardware description; a test compares them with the components.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .config import Config
from .engines.finish import CHOICE_LATENCY, REQUANTISE, Finish
from .engines.specifications import specification
from .isa import COMMAND_BITS

#: Of a soft reset at least.
_RESET_CYCLES = 128
#: Results of windows that the result FIFO holds at least.
RESULT_WINDOWS = 8
#: A window is held back while the results before it take more cycles than this: each window takes at least one.
BACKLOG_LIMIT = RESULT_WINDOWS - 1


def burst_results(config: Config) -> int:
    """Results, each of as many lanes as the array has, that a window has at most."""
    most = max(specification(code).most_results(config) for code in config.engines)
    return -(-most // config.array.lanes)


def result_windows(config: Config) -> int:
    """Results that the result FIFO holds."""
    # Twice as many, so that bursts with a whole finish follow one another without a pause.
    results = burst_results(config)
    return max(RESULT_WINDOWS, 2 * results if results > 1 else 0)


def burst_limit(config: Config) -> int:
    """A burst is held back while the results before it take more cycles than this: each of them takes at least one."""
    return result_windows(config) - burst_results(config)


#: Steps, or groups of results, that a walker is ahead of its gate at most.
LOOKAHEAD = 8

#: Pauses between commands that groups found ahead of their results hide: those that have left the walker's registers.
PAUSES_HIDDEN = LOOKAHEAD - 3

#: Pieces of a LOAD or FILL that are found ahead of their chunks.
PIECES_AHEAD = 4

#: Beats of a LOAD between their queue and the aligner, which holds one more, and chunks between it and the memory.
BEATS_AHEAD, CHUNKS_AHEAD = 4, LOOKAHEAD + 3

#: Runs of LOADs that lie between a command that is taken and the splitting into bursts.
LOAD_RUNS_AHEAD = 3

#: Words of commands that are read from their ring ahead of the queue: as many as the place of one takes cycles to come
#: back.
WORDS_AHEAD = 4

#: From the issue of a step to its address, from the address to its word.
ISSUE_LATENCY = 3
FETCH_LATENCY = 5
#: From an engine's result to its first group, through the requantiser and the table, to the write of
#: the piece, and from there to the first cycle in which its address may be read.
RESULTS_LATENCY = 5
REQUANTISE_LATENCY = 14
TABLE_LATENCY = 2
WRITE_BACK_LATENCY = 2
WRITE_LATENCY = 2


def addends_latency(config: Config) -> int:
    """Cycles in which totals become the addends of the requantiser: those of the slowest finish, for all."""
    finishes = [finish for code in config.engines for finish in specification(code).finishes]
    latencies = [finish.addends_latency for finish in finishes if finish.addends_latency is not None]
    return max(latencies) + CHOICE_LATENCY if latencies else 0


def reset_cycles(config: Config) -> int:
    """Cycles that a soft reset lasts at least: more than any pipeline, whose flags run out instead of being reset."""
    longest = max(landing_latency(config, {"engine": engine}) for engine in config.engines)
    # As if the whole result FIFO had to be worked off.
    waiting = result_windows(config) * result_groups(config, config.array.lanes)
    return max(1 << (ISSUE_LATENCY + longest + waiting).bit_length(), _RESET_CYCLES)


def landing_latency(config: Config, command: Mapping[str, int]) -> int:
    """Cycles from a window's last issue to the first issue that may read its result; ``command`` holds its fields.

    For a window of one group, when nothing waits for the requantiser.
    """
    # Both sides of the feature memory are as far from their issue: the reader's issue latency counts in its favour.
    return (
        FETCH_LATENCY
        + specification(command["engine"]).latency(config, command)
        + RESULTS_LATENCY
        + addends_latency(config)
        + REQUANTISE_LATENCY
        + TABLE_LATENCY
        + WRITE_BACK_LATENCY
        + WRITE_LATENCY
    )


@dataclass(frozen=True, slots=True)
class Overheads:
    """Cycles between events on the ideal bus, as measured on the hardware.

    Attributes
    ----------
    start : int
        From the start of a run, with the program resident, to the first command at a unit.
    finish : int
        From the completion of the last command to the end of the run.
    token : int
        From the completion of a command to the first cycle of a command of the other queue that waited for it.
    turn : int
        From the completion of a command of the DMA queue to the first cycle of another one that waited for it.
    intake : int
        From a COMPUTE command at its unit to the begin of its walk.
    issue : int
        From there to its first issue.
    command : int
        To check and offer a command, beside one cycle for each word in which it is read.
    completion : int
        From the issue that could read a command's last result to its completion, as the queue sees it.
    read_latency : int
        From a read address on the bus to its first beat.
    bursts : int
        Bursts that the memory takes before it has answered the first of them, of reads and of writes.
    write_latency : int
        From the last beat of a write to its response.
    load : int
        From a LOAD at its unit to its first read address, beside one cycle for each bit of `row_pieces`.
    load_write : int
        From a beat on the bus to the write of what it brings.
    fill_write : int
        From a FILL at its unit to its first write.
    write_finish : int
        From the last write of a LOAD or FILL to its completion.
    write_lead : int
        From a write of a LOAD or FILL as this counts it, to the issue that could read what a result written in the same
        cycle holds.
    next_pieces : int
        From the last piece of a LOAD or FILL to the first one of the next, where nothing is waited for.
    store : int
        From a STORE at its unit to its first read.
    read_lead : int
        From the issue of a step to a STORE's read that would reach the memory in the same cycle.
    store_beat : int
        From a STORE's read to its beat on the bus.
    restore : int
        From the answer to a STORE's burst to the first read of another one that it has held up.
    store_room : int
        From where the last row of a STORE is walked to the begin of the command behind the next one.
    store_finish : int
        From the answer to its last burst to the completion of a STORE.
    first_fetch : int
        From the start of a run to where a ring looks for room.
    fetch : int
        From where a ring finds room for a command, for which it looks every other cycle, to the request of a burst.
    read_next : int
        From a word of a command that leaves for the queue to where another one, which is read then, leaves room.
    read_first : int
        From the last word of a command on the bus to where it leaves room, if the queue waits for it.
    leave : int
        From a beat on the bus to where its leaving the queue of beats leaves room, where nothing waits.
    leave_late : int
        From a write that waited for results to where a beat leaves room that could not go on before.
    reload : int
        From the end of a LOAD's burst to a request of another one that it has held up.
    refetch : int
        From the end of a burst of commands to a request that it has held up.
    fetched : int
        From the last word of a command on the bus to the command at its unit.
    """

    start: int = 4
    finish: int = 6
    token: int = 4
    turn: int = 3
    intake: int = 2
    issue: int = 6
    command: int = 5
    completion: int = 1
    read_latency: int = 40
    bursts: int = 8
    write_latency: int = 40
    load: int = 10
    load_write: int = 7
    fill_write: int = 10
    write_finish: int = 5
    write_lead: int = 3
    next_pieces: int = 3
    store: int = 9
    read_lead: int = 2
    store_beat: int = 5
    restore: int = 7
    store_room: int = 2
    store_finish: int = 5
    first_fetch: int = 2
    fetch: int = 4
    read_next: int = 3
    read_first: int = 6
    reload: int = 3
    leave: int = 2
    leave_late: int = 8
    refetch: int = 4
    fetched: int = 12


OVERHEADS = Overheads()


def command_beats(config: Config) -> int:
    """Beats of one command on the bus."""
    return COMMAND_BITS // config.axi.data_bits


def commands_at_once(config: Config) -> int:
    """Commands that a burst fetches at most."""
    return 2 if 2 * command_beats(config) <= config.axi.BURST_BEATS else 1


def command_cycles(config: Config) -> int:
    """Least cycles from one command to the next, of the same queue."""
    return command_beats(config) + OVERHEADS.command


def burst_beats(config: Config, address: int, size_bytes: int) -> list[int]:
    """Beats of each burst of a run: bursts end where the address is a multiple of a whole one."""
    beat = config.axi.data_bytes
    first, end = address // beat, -(-(address + size_bytes) // beat)
    bursts = []
    while first < end:
        stop = min(end, (first // config.axi.BURST_BEATS + 1) * config.axi.BURST_BEATS)
        bursts.append(stop - first)
        first = stop
    return bursts


def run_cycles(config: Config, size_bytes: int) -> int:
    """Bus cycles of one of many runs of this length that are read, on average.

    Its beats, or its share of the latency where its bursts are too short to hide it.
    """
    return _run_cycles(config, size_bytes, OVERHEADS.read_latency + OVERHEADS.reload)


def stored_run_cycles(config: Config, size_bytes: int) -> int:
    """Those of a run that is written."""
    return _run_cycles(config, size_bytes, OVERHEADS.store_beat + OVERHEADS.write_latency + OVERHEADS.restore)


def _run_cycles(config: Config, size_bytes: int, latency: int) -> int:
    bursts = burst_beats(config, 0, size_bytes)
    return max(sum(bursts), -(-len(bursts) * (latency + bursts[-1]) // config.axi.outstanding))


def load_beats(config: Config) -> int:
    """Beats that a LOAD's queue holds: those of all bursts in flight and two more, rounded up to a power of two."""
    return 1 << ((config.axi.outstanding + 2) * config.axi.BURST_BEATS - 1).bit_length()


def chunk_cycles(config: Config, pieces: int, piece_bytes: int) -> int:
    """Cycles in which a LOAD writes pieces to the feature memory: a beat, or what is left of a piece, in each."""
    return pieces * -(-piece_bytes // config.axi.data_bytes)


def fill_cycles(config: Config, rows: int, piece_bytes: int) -> int:
    """Cycles in which a FILL writes, while no result is written."""
    return rows * -(-piece_bytes // config.array.lanes)


def result_groups(config: Config, lanes: int, finish: Finish = REQUANTISE) -> int:
    """Groups in which the results of a window are finished, one each cycle."""
    return -(-lanes // finish.at_once(config))


def issue_steps(command: Mapping[str, int]) -> int:
    """Steps that a COMPUTE command issues; ``command`` holds its fields."""
    skip = command.get("skip", 0)
    return command["outer"] * command["middle"] * (command["inner"] * (command["steps"] - skip) + skip)


def issue_rounds(
    backlog: int,
    windows: Sequence[tuple[int, int]],
    rounds: int,
    *,
    begins: bool = False,
    burst_limit: int | None = None,
) -> Iterator[tuple[int, list[tuple[int, int]], int]]:
    """Issue windows as fast as their results allow.

    Parameters
    ----------
    backlog : int
        Cycles that the results of earlier windows take.
    windows : sequence of (int, int)
        Steps of each window of a round, and groups of its results.
    rounds : int
        How often these windows come, one round after the other.
    begins : bool
        The first of them is the first of its command, and its results take a cycle more.
    burst_limit : int or None
        Each window is a burst, see :func:`burst_limit`.

    Yields
    ------
    count : int
        So many rounds are like this one.
    issued : list of (int, int)
        Of each window, for how many cycles it is held, and how many the results before it take when it counts.
    backlog : int
        Cycles that the results of all windows so far take behind the round's last issue.
    """
    done = 0
    while done < rounds:
        backlog_before, issued = backlog, []
        for number, (steps, groups) in enumerate(windows):
            is_first = begins and not done and not number
            # Held is the last step of a window, of a burst the first; from there on its results count.
            before_held = steps - 1 if burst_limit is None else 0
            waiting = max(backlog - before_held, 0)
            hold = max(waiting - (BACKLOG_LIMIT if burst_limit is None else burst_limit), 0)
            waiting -= hold
            issued.append((hold, waiting))
            backlog = max(max(waiting - 1, 0) + groups + is_first - (steps - 1 - before_held), 0)
        # The next rounds are like this one, if they begin like it.
        count = rounds - done if backlog == backlog_before and not (begins and not done) else 1
        yield count, issued, backlog
        done += count


def issue_windows(
    backlog: int,
    windows: Sequence[tuple[int, int]],
    rounds: int,
    *,
    begins: bool = False,
    burst_limit: int | None = None,
) -> tuple[int, int]:
    """Cycles of :func:`issue_rounds` from the first issue to the one behind the last, and the backlog then."""
    steps, cycles = sum(steps for steps, _ in windows), 0
    for count, issued, after in issue_rounds(backlog, windows, rounds, begins=begins, burst_limit=burst_limit):
        cycles += count * (steps + sum(hold for hold, _ in issued))
        backlog = after
    return cycles, backlog
