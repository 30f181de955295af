"""The addresses of a COMPUTE command, which each step of each window reads and each result is written to."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ..isa import LIST_CLEAR, LIST_COUNT_BITS, LIST_COUNT_LSB, LIST_FIRE, LOCAL_BITS

Int64 = npt.NDArray[np.int64]

LOCAL_SPACE = 1 << LOCAL_BITS


def loop_addresses(command: Mapping[str, int], side: str) -> Int64:
    """Return the address of the first byte of each window or of each result.

    Parameters
    ----------
    command : mapping
        Fields of :data:`isa.COMPUTE`.
    side : str
        ``"source"`` or ``"destination"``.

    Returns
    -------
    int64[outer, middle, inner]
        Byte addresses modulo 2**24, in the order of the loops.
    """
    i, j, k = np.ogrid[: command["outer"], : command["middle"], : command["inner"]]
    return (
        command[side] + i * command[f"{side}_outer"] + j * command[f"{side}_middle"] + k * command[f"{side}_inner"]
    ) % LOCAL_SPACE


def tile_axis(command: Mapping[str, int]) -> int:
    """Return the index of the loop over output tiles, of the three loops: 0 or 2."""
    return 2 if command["tile_inner"] else 0


def tile_count(command: Mapping[str, int]) -> int:
    """Return the number of output tiles of the command."""
    return command["inner"] if command["tile_inner"] else command["outer"]


def step_offsets(command: Mapping[str, int], entries: npt.NDArray[np.uint32], *, feature_bytes: int) -> Int64:
    """Return the offsets of the command's steps, those of the first window of an inner loop.

    Parameters
    ----------
    command : mapping
        Fields of :data:`isa.COMPUTE`.
    entries : uint32[list_entries]
        The list memory.
    feature_bytes : int
        The list memory keeps as many bits of an offset as an address below this has.

    Returns
    -------
    int64[steps]
    """
    return _entries(command, entries) & feature_bytes - 1


def step_counts(command: Mapping[str, int], entries: npt.NDArray[np.uint32], *, lanes: int) -> Int64:
    """Return the number of bytes of each step's word that count, int64[steps]; the list memory keeps as many bits as
    the lanes need."""
    counts = _entries(command, entries) >> LIST_COUNT_LSB & (1 << LIST_COUNT_BITS) - 1 & lanes - 1
    return np.where(counts, counts, lanes)


def is_framed(command: Mapping[str, int], entries: npt.NDArray[np.uint32], *, has_streams: bool) -> bool:
    """Return whether the flags of the command's list enclose one window, so that it gives one result.

    With ``has_streams`` its engine may begin the sum of a window at a later step than the first.
    """
    chosen = _entries(command, entries)
    fire = chosen & LIST_FIRE != 0
    start = sum_start(command, entries)
    may_start = start is not None and command["skip"] <= start and (has_streams or start == 0)
    return may_start and bool(fire[-1]) and not fire[:-1].any()


def sum_start(command: Mapping[str, int], entries: npt.NDArray[np.uint32]) -> int | None:
    """Return the only step of the command with the flag ``clear``; None if there is not exactly one."""
    starts = np.flatnonzero(_entries(command, entries) & LIST_CLEAR)
    return int(starts[0]) if len(starts) == 1 else None


def _entries(command: Mapping[str, int], entries: npt.NDArray[np.uint32]) -> Int64:
    return entries[command["list"] : command["list"] + command["steps"]].astype(np.int64)


def in_issue_order(command: Mapping[str, int], steps: npt.NDArray, axis: int) -> npt.NDArray:
    """Return the steps of an inner loop that are issued: every window but its first skips ``skip`` steps.

    Parameters
    ----------
    command : mapping
        Fields of :data:`isa.COMPUTE`.
    steps : [..., inner, steps, ...]
        One value for every step of every window.
    axis : int
        The axis of the inner loop; that of the steps follows it.

    Returns
    -------
    [..., issued steps, ...]
    """
    issued = np.ones((command["inner"], command["steps"]), np.bool_)
    issued[1:, : command["skip"]] = False
    joined = steps.reshape(*steps.shape[:axis], -1, *steps.shape[axis + 2 :])
    return joined.compress(issued.reshape(-1), axis=axis)


def lane_counts(command: Mapping[str, int]) -> Int64:
    """Return the number of results of a window of each tile, int64[tiles]."""
    counts = np.full(tile_count(command), command["lanes"], np.int64)
    counts[-1] = command["last_lanes"]
    return counts
