"""Latencies that hardware and compiler share, in cycles.

Those of engines stand in their specifications, so that the prediction needs no hardware description; a test compares
all of them with the components.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..config import Config
from ..engines import specification_of
from ..engines.specification import CHOICE_LATENCY
from .depths import result_windows
from .issue import result_groups

#: Of a soft reset at least.
_RESET_CYCLES = 128

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
    finishes = [finish for code in config.engines for finish in specification_of(code).finishes]
    latencies = [finish.addends_latency for finish in finishes if finish.addends_latency is not None]
    return max(latencies) + CHOICE_LATENCY if latencies else 0


def reset_cycles(config: Config) -> int:
    """Cycles that a soft reset lasts at least: more than any pipeline, whose flags run out instead of being reset."""
    longest = max(landing_latency(config, {"engine": engine}) for engine in config.engines)
    # As if the whole result FIFO had to be worked off.
    waiting = result_windows(config) * result_groups(config, config.array.lanes)
    return max(1 << (ISSUE_LATENCY + longest + waiting).bit_length(), _RESET_CYCLES)


def finish_latency(config: Config) -> int:
    """Cycles from the arrival of a window's one group in front of the result FIFO to the first issue that may read it,
    less the issue's own latency, when nothing waits: the same for all engines."""
    # Both sides of the feature memory are as far from their issue: the reader's issue latency counts in its favour.
    return (
        RESULTS_LATENCY
        + addends_latency(config)
        + REQUANTISE_LATENCY
        + TABLE_LATENCY
        + WRITE_BACK_LATENCY
        + WRITE_LATENCY
    )


def landing_latency(config: Config, command: Mapping[str, int]) -> int:
    """Cycles from a window's last issue to the first issue that may read its result; ``command`` holds its fields.

    For a window of one group, when nothing waits for the requantiser.
    """
    return FETCH_LATENCY + specification_of(command["engine"]).latency(config, command) + finish_latency(config)
