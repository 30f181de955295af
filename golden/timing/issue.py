"""The issue time of a COMPUTE command: its steps, and the pauses in which its results are worked off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..config import Config
from ..engines import specification_of
from ..engines.specification import REQUANTISE, Epilogue


def result_groups(config: Config, lanes: int, epilogue: Epilogue = REQUANTISE) -> int:
    """Return the groups in which the results of a window are requantised, one each cycle."""
    return -(-lanes // epilogue.at_once(config))


def issue_steps(command: Mapping[str, int]) -> int:
    """Return the steps that a COMPUTE command issues; ``command`` holds its fields."""
    skip = command.get("skip", 0)
    return command["outer"] * command["middle"] * (command["inner"] * (command["steps"] - skip) + skip)


def command_parts(fields: Mapping[str, int], config: Config) -> Iterator[tuple[list[tuple[int, int]], int]]:
    """Split a COMPUTE command into parts whose windows have the same results, in order.

    Each part is a round of windows, as (steps, groups of results), and the number of rounds.
    """
    steps, rounds = fields["steps"], fields["middle"] * fields["outer"]
    full, last = fields["lanes"], fields["last_lanes"]
    if fields.get("tile_inner"):
        lanes = [full] * (fields["inner"] - 1) + [last]
        found = [([steps] * fields["inner"], lanes, rounds)]
    else:
        row = [steps, *[steps - fields.get("skip", 0)] * (fields["inner"] - 1)]
        found = [
            (row, [count] * fields["inner"], tiles * fields["middle"])
            for count, tiles in ((full, fields["outer"] - 1), (last, 1))
            if tiles
        ]
    spec = specification_of(fields["engine"])
    epilogue, results = spec.epilogue_of(fields), spec.issue.results(fields)
    for row, lanes, rounds in found:
        groups = [results * result_groups(config, count, epilogue) for count in lanes]
        # Most windows are equal and share one object, which saves memory.
        windows: dict[tuple[int, int], tuple[int, int]] = {}
        yield [windows.setdefault(window, window) for window in zip(row, groups, strict=True)], rounds


def issue_rounds(
    backlog: int,
    windows: Sequence[tuple[int, int]],
    rounds: int,
    *,
    limit: int,
    begins: bool = False,
    is_burst: bool = False,
) -> Iterator[tuple[int, list[tuple[int, int]], int]]:
    """Issue windows as fast as the requantiser takes their results.

    Parameters
    ----------
    backlog : int
        Cycles that the requantiser still needs for results of earlier windows.
    windows : sequence of (int, int)
        Steps of each window of a round, and groups of its results.
    rounds : int
        The number of rounds.
    limit : int
        See :func:`~lutterfly.golden.timing.latencies.backlog_limit`.
    begins : bool
        Whether the first window is the first of its command: its results take a cycle more.
    is_burst : bool
        Whether each window is a burst.

    Yields
    ------
    count : int
        Number of equal rounds.
    issued : list of (int, int)
        For each window, the cycles for which it is held, and the backlog when its own results are added.
    backlog : int
        Cycles that the results of all windows so far still take after the round's last issue.
    """
    done = 0
    while done < rounds:
        backlog_before, issued = backlog, []
        for number, (steps, groups) in enumerate(windows):
            is_first = begins and not done and not number
            # The step that is held is a window's last, or a burst's first; from there on its results count.
            before_held = 0 if is_burst else steps - 1
            waiting = max(backlog - before_held, 0)
            hold = max(waiting - limit, 0)
            waiting -= hold
            issued.append((hold, waiting))
            backlog = max(max(waiting - 1, 0) + groups + is_first - (steps - 1 - before_held), 0)
        # If the next rounds begin like this one, they are like it.
        count = rounds - done if backlog == backlog_before and not (begins and not done) else 1
        yield count, issued, backlog
        done += count


def issue_windows(
    backlog: int,
    windows: Sequence[tuple[int, int]],
    rounds: int,
    *,
    limit: int,
    begins: bool = False,
    is_burst: bool = False,
) -> tuple[int, int]:
    """Return the cycles of :func:`issue_rounds` from the first issue to the one after the last, and the backlog
    then."""
    steps, cycles = sum(steps for steps, _ in windows), 0
    for count, issued, after in issue_rounds(backlog, windows, rounds, limit=limit, begins=begins, is_burst=is_burst):
        cycles += count * (steps + sum(hold for hold, _ in issued))
        backlog = after
    return cycles, backlog
