"""Depths: how far ahead parts of the hardware are, and how much their queues hold."""

from __future__ import annotations

from ..config import Config
from ..engines import specification_of

#: Results of windows that the result FIFO holds at least.
RESULT_WINDOWS = 8


def window_results(config: Config, code: int) -> int:
    """Results, each of as many lanes as the array has, that a window of an engine has at most."""
    engine = specification_of(code)
    return max(-(-engine.most_results(config) // config.array.lanes), 1 + engine.issue.most_further(config))


def burst_results(config: Config) -> int:
    """Results that a burst has at most; 1 if there are no bursts."""
    return max(window_results(config, code) if specification_of(code).issue.is_burst else 1 for code in config.engines)


def result_windows(config: Config) -> int:
    """Results that the result FIFO holds."""
    # Twice as many, so that bursts with a whole finish follow one another without a pause.
    results = burst_results(config)
    return max(RESULT_WINDOWS, 2 * results if results > 1 else 0)


def backlog_limit(config: Config, code: int) -> int:
    """A window of an engine is held back while the results before it take more cycles than this: each of them takes at
    least one, and there must be room for its own."""
    places = result_windows(config) if specification_of(code).issue.is_burst else RESULT_WINDOWS
    return places - window_results(config, code)


#: Steps, or groups of results, that a walker is ahead of its gate at most.
LOOKAHEAD = 9

#: Steps between the one that is walked and the one that waits at the gate, both included.
STEPS_AHEAD = LOOKAHEAD + 2

#: Pauses between commands that groups found ahead of their results hide: those that have left the walker's registers,
#: while a group goes in each cycle, of whose place the walker hears a cycle later.
PAUSES_HIDDEN = LOOKAHEAD - 4

#: Pieces of a LOAD or FILL that are found ahead of their chunks.
PIECES_AHEAD = 4

#: Beats of a LOAD between their queue and the aligner, which holds one more, and chunks between it and the memory.
BEATS_AHEAD, CHUNKS_AHEAD = 4, LOOKAHEAD + 3

#: Runs of LOADs that lie between a command that is taken and the splitting into bursts.
LOAD_RUNS_AHEAD = 3

#: Words of commands that are read from their ring ahead of the queue: as many as the place of one takes cycles to come
#: back.
WORDS_AHEAD = 4

#: Bursts of a core's STOREs whose beats an arbiter holds.
COLLECTED_BURSTS = 2

#: Bursts that an arbiter has offered and whose beats are not gone.
OFFERED_BURSTS = 2

#: Read requests of a core that are on their way to the turns of an arbiter: two in front of these, one in the guard.
REQUESTS_AHEAD = 3

#: Words of a STORE between request and bus: enough for a beat each cycle while a word takes up to 13 cycles to come.
WORDS_IN_FLIGHT = 16

#: Beats of a STORE between the feature memory and an arbiter's queue of them: words on their way, and two at the unit's
#: output and at the guard's.
BEATS_OUTGOING = WORDS_IN_FLIGHT + 2 + 2


def load_beats(config: Config) -> int:
    """Beats that a LOAD's queue holds: those of all bursts in flight and two more, rounded up to a power of two."""
    return 1 << ((config.axi.outstanding + 2) * config.axi.BURST_BEATS - 1).bit_length()
