"""Cycles: the latencies that hardware and compiler share, and how long transfers and windows take.

Latencies that belong to one component are numbers of this module too, so that the prediction needs no hardware description; a test
compares them with the components.
"""
from __future__ import annotations

from dataclasses import dataclass

from .config import Config
from .isa import Engine

#: Windows that the result FIFO holds.
RESULT_WINDOWS = 8
#: A window is held back while more groups than this wait for the requantiser: each window has at least one.
BACKLOG_LIMIT = RESULT_WINDOWS - 1

#: From the issue of a step to its address, from the address to its word.
ISSUE_LATENCY = 3
FETCH_LATENCY = 5
#: From a product's operands to the product.
MULTIPLIER_LATENCY = 3
#: From an engine's result to its first group, through the requantiser, through the table, to the write of the piece, and from there to
#: the first cycle in which its address may be read.
RESULTS_LATENCY = 3
REQUANTISE_LATENCY = 14
TABLE_LATENCY = 2
WRITE_BACK_LATENCY = 2
WRITE_LATENCY = 3


def engine_latency(config: Config, engine: Engine) -> int:
    """Cycles from the last word of a window to its result."""
    if engine is Engine.MAC:
        tree_levels = config.array.lanes.bit_length() - 1
        return MULTIPLIER_LATENCY + tree_levels + 1 + config.array.columns - 1
    return 1


def landing_latency(config: Config, engine: Engine) -> int:
    """Cycles from the last issue of a window with one group, when nothing waits, to the first issue that may read its result."""
    # Both sides of the feature memory are as far from their issue: the reader's issue latency counts in its favour.
    return (FETCH_LATENCY + engine_latency(config, engine) + RESULTS_LATENCY + REQUANTISE_LATENCY + TABLE_LATENCY
            + WRITE_BACK_LATENCY + WRITE_LATENCY)


@dataclass(frozen=True, slots=True)
class Overheads:
    """Cycles between events on the ideal bus, all measured on the hardware.

    Attributes
    ----------
    start : int
        From the start of a run to the first command at a unit.
    finish : int
        From the completion of the last command to the end of the run.
    token : int
        From the completion of a command to the first cycle of a command of the other queue that waited for it.
    completion : int
        From the issue that may read a result to the completion of the command that wrote it, as the queue sees it.
    read_latency : int
        From a read address on the bus to its first beat.
    write_latency : int
        From the last beat of a write to its response.
    load : int
        Of a LOAD, beyond its bus and memory cycles.
    store : int
        Of a STORE, beyond its bus cycles.
    fill : int
        Of a FILL, beyond its memory cycles.
    """

    start: int = 8
    finish: int = 4
    token: int = 4
    completion: int = 2
    read_latency: int = 40
    write_latency: int = 40
    load: int = 8
    store: int = 16
    fill: int = 4


OVERHEADS = Overheads()
