"""How long transfers take on the bus and in the feature memory, in cycles."""

from __future__ import annotations

from ..config import Config
from ..isa import COMMAND_BITS
from .overheads import OVERHEADS


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


def chunk_cycles(config: Config, pieces: int, piece_bytes: int) -> int:
    """Cycles in which a LOAD writes pieces to the feature memory: a beat, or what is left of a piece, in each."""
    return pieces * -(-piece_bytes // config.axi.data_bytes)


def fill_cycles(config: Config, rows: int, piece_bytes: int) -> int:
    """Cycles in which a FILL writes, while no result is written."""
    return rows * -(-piece_bytes // config.array.lanes)
