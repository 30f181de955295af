"""Latencies that hardware and compiler share, in cycles.

The latencies of engines are in their specifications, so that the prediction needs no hardware description; a test
compares all of them with the components.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..config import Config
from ..engines import specification_of
from ..engines.specification import CHOICE_LATENCY
from ..isa import COMMAND_BITS
from .issue import result_groups
from .overheads import OVERHEADS

# Depths of queues and of look-ahead in the hardware.

#: Results of windows that the result FIFO holds, at least.
RESULT_WINDOWS = 8


def window_results(config: Config, code: int) -> int:
    """Return the most results, each of as many lanes as the array has, that a window of an engine has."""
    engine = specification_of(code)
    return max(-(-engine.most_results(config) // config.array.lanes), 1 + engine.issue.most_further(config))


def burst_results(config: Config) -> int:
    """Return the most results that a burst has; 1 if there are no bursts."""
    return max(window_results(config, code) if specification_of(code).issue.is_burst else 1 for code in config.engines)


def result_windows(config: Config) -> int:
    """Return the results that the result FIFO holds."""
    # There are twice as many, so that bursts with a whole epilogue follow one another without a pause.
    results = burst_results(config)
    return max(RESULT_WINDOWS, 2 * results if results > 1 else 0)


def backlog_limit(config: Config, code: int) -> int:
    """Return the backlog, in cycles, above which a window of an engine is held back.

    Each result in the FIFO takes at least one cycle, and there must be room for the window's own.
    """
    places = result_windows(config) if specification_of(code).issue.is_burst else RESULT_WINDOWS
    return places - window_results(config, code)


#: The most steps, or groups of results, by which a walker is ahead of its gate.
LOOKAHEAD = 9

#: Steps between the one that is walked and the one that waits at the gate, both included.
STEPS_AHEAD = LOOKAHEAD + 2

#: Cycles of a pause between commands that are hidden because groups are found ahead of their results: as many as have
#: left the walker's registers, while a group leaves in each cycle and the walker sees its free place a cycle later.
PAUSES_HIDDEN = LOOKAHEAD - 4

#: Pieces of a LOAD or FILL that are found ahead of their chunks.
PIECES_AHEAD = 4

#: Beats of a LOAD between their queue and the aligner, which holds one more, and chunks between it and the memory.
BEATS_AHEAD, CHUNKS_AHEAD = 4, LOOKAHEAD + 3

#: Runs of LOADs that lie between a command that is taken and the splitting into bursts.
LOAD_RUNS_AHEAD = 3

#: Words of commands that are read from their ring ahead of the queue: as many as there are cycles until a freed place
#: is seen.
WORDS_AHEAD = 4

#: Bursts of a core's STOREs whose beats an arbiter holds.
COLLECTED_BURSTS = 2

#: Bursts that an arbiter has offered and whose beats are not all sent.
OFFERED_BURSTS = 2

#: Read requests of a core that are on their way to an arbiter's turns: two before the arbiter, one in the guard.
REQUESTS_AHEAD = 3

#: Words of a STORE between request and bus: enough for a beat each cycle while a word takes up to 13 cycles.
WORDS_IN_FLIGHT = 16

#: Beats of a STORE between the feature memory and an arbiter's queue: the words in flight, and two each at the outputs
#: of the unit and of the guard.
BEATS_OUTGOING = WORDS_IN_FLIGHT + 2 + 2


def load_beats(config: Config) -> int:
    """Return the beats that a LOAD's queue holds: those of all bursts in flight and two bursts more, as a power of
    two."""
    return 1 << ((config.axi.outstanding + 2) * config.axi.BURST_BEATS - 1).bit_length()


#: The fewest cycles of a soft reset.
_RESET_CYCLES = 128

#: Cycles from the issue of a step to its address, and from the address to its word.
ISSUE_LATENCY = 3
FETCH_LATENCY = 5

#: Cycles from an engine's result to its first group, through the requantiser and the table, to the write of the piece,
#: and from there to the first cycle in which its address may be read.
RESULTS_LATENCY = 5
REQUANTISE_LATENCY = 14


TABLE_LATENCY = 2
WRITE_BACK_LATENCY = 2


WRITE_LATENCY = 2


def addends_latency(config: Config) -> int:
    """Return the cycles in which totals become addends of the requantiser: for all epilogues as for the slowest."""
    epilogues = [epilogue for code in config.engines for epilogue in specification_of(code).epilogues]
    latencies = [epilogue.addends_latency for epilogue in epilogues if epilogue.addends_latency is not None]
    return max(latencies) + CHOICE_LATENCY if latencies else 0


def reset_cycles(config: Config) -> int:
    """Return the fewest cycles of a soft reset: more than any pipeline has stages, as their flags are not reset."""
    longest = max(result_latency(config, {"engine": engine}) for engine in config.engines)
    # This supposes that the whole result FIFO has to be worked off.
    waiting = result_windows(config) * result_groups(config, config.array.lanes)
    return max(1 << (ISSUE_LATENCY + longest + waiting).bit_length(), _RESET_CYCLES)


def epilogue_latency(config: Config) -> int:
    """Return the cycles from a window's one group at the result FIFO to the first issue that may read it.

    The issue's own latency is subtracted. Nothing waits; it is the same for all engines.
    """
    # The reader takes its issue latency to reach the memory, so it may be issued earlier by as much.
    return (
        RESULTS_LATENCY
        + addends_latency(config)
        + REQUANTISE_LATENCY
        + TABLE_LATENCY
        + WRITE_BACK_LATENCY
        + WRITE_LATENCY
    )


def result_latency(config: Config, command: Mapping[str, int]) -> int:
    """Return the cycles from a window's last issue to the first issue that may read its result.

    This is for a window of one group, when nothing waits for the requantiser. ``command`` holds the command's fields.
    """
    return FETCH_LATENCY + specification_of(command["engine"]).latency(config, command) + epilogue_latency(config)


# Cycles of transfers on the bus and in the feature memory.


def command_beats(config: Config) -> int:
    """Return the beats of one command on the bus."""
    return COMMAND_BITS // config.axi.data_bits


def commands_at_once(config: Config) -> int:
    """Return the most commands that a burst fetches."""
    return 2 if 2 * command_beats(config) <= config.axi.BURST_BEATS else 1


def command_cycles(config: Config) -> int:
    """Return the fewest cycles from one command of a queue to the next."""
    return command_beats(config) + OVERHEADS.command


def burst_beats(config: Config, address: int, size_bytes: int) -> list[int]:
    """Return the beats of each burst of a run: a burst ends where the address is a multiple of a whole one."""
    beat = config.axi.data_bytes
    first, end = address // beat, -(-(address + size_bytes) // beat)
    bursts = []
    while first < end:
        stop = min(end, (first // config.axi.BURST_BEATS + 1) * config.axi.BURST_BEATS)
        bursts.append(stop - first)
        first = stop
    return bursts


def run_cycles(config: Config, size_bytes: int) -> int:
    """Return the average bus cycles of one of many runs of this length that are read.

    These are its beats, or its share of the latency where its bursts are too short to hide it.
    """
    return _run_cycles(config, size_bytes, OVERHEADS.read_latency + OVERHEADS.reload)


def stored_run_cycles(config: Config, size_bytes: int) -> int:
    """Return the same as :func:`run_cycles` for runs that are written."""
    return _run_cycles(config, size_bytes, OVERHEADS.store_beat + OVERHEADS.write_latency + OVERHEADS.restore)


def _run_cycles(config: Config, size_bytes: int, latency: int) -> int:
    bursts = burst_beats(config, 0, size_bytes)
    return max(sum(bursts), -(-len(bursts) * (latency + bursts[-1]) // config.axi.outstanding))


def chunk_cycles(config: Config, pieces: int, piece_bytes: int) -> int:
    """Return the cycles in which a LOAD writes pieces to the feature memory: each takes a beat, or the rest of a
    piece."""
    return pieces * -(-piece_bytes // config.axi.data_bytes)


def fill_cycles(config: Config, rows: int, piece_bytes: int) -> int:
    """Return the cycles in which a FILL writes, if no result is written meanwhile."""
    return rows * -(-piece_bytes // config.array.lanes)
