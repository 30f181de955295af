"""How long a COMPUTE command issues: its steps, and the pauses that its results ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..config import Config
from ..engines import specification_of
from ..engines.specification import REQUANTISE, Finish


def result_groups(config: Config, lanes: int, finish: Finish = REQUANTISE) -> int:
    """Groups in which the results of a window are finished, one each cycle."""
    return -(-lanes // finish.at_once(config))


def issue_steps(command: Mapping[str, int]) -> int:
    """Steps that a COMPUTE command issues; ``command`` holds its fields."""
    skip = command.get("skip", 0)
    return command["outer"] * command["middle"] * (command["inner"] * (command["steps"] - skip) + skip)


def command_parts(fields: Mapping[str, int], config: Config) -> Iterator[tuple[list[tuple[int, int]], int]]:
    """Parts of a COMPUTE command whose windows have the same results, in order: steps of each window of a round and
    groups of its results, and the rounds."""
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
    finish, results = spec.finish_of(fields), spec.issue.results(fields)
    for row, lanes, rounds in found:
        groups = [results * result_groups(config, count, finish) for count in lanes]
        # Most windows are alike: they are one object.
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
    """Issue windows as fast as their results allow.

    Parameters
    ----------
    backlog : int
        Cycles that the results of earlier windows take.
    windows : sequence of (int, int)
        Steps of each window of a round, and groups of its results.
    rounds : int
        How often these windows come, one round after the other.
    limit : int
        See :func:`~lutterfly.golden.timing.latencies.backlog_limit`.
    begins : bool
        The first of them is the first of its command, and its results take a cycle more.
    is_burst : bool
        Each window is a burst.

    Yields
    ------
    count : int
        So many rounds are like this one.
    issued : list of (int, int)
        Of each window, for how many cycles it is held, and how many the results before it take when it counts.
    backlog : int
        Cycles that the results of all windows so far take after the round's last issue.
    """
    done = 0
    while done < rounds:
        backlog_before, issued = backlog, []
        for number, (steps, groups) in enumerate(windows):
            is_first = begins and not done and not number
            # Held is the last step of a window, of a burst the first; from there on its results count.
            before_held = 0 if is_burst else steps - 1
            waiting = max(backlog - before_held, 0)
            hold = max(waiting - limit, 0)
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
    limit: int,
    begins: bool = False,
    is_burst: bool = False,
) -> tuple[int, int]:
    """Cycles of :func:`issue_rounds` from the first issue to the one after the last, and the backlog then."""
    steps, cycles = sum(steps for steps, _ in windows), 0
    for count, issued, after in issue_rounds(backlog, windows, rounds, limit=limit, begins=begins, is_burst=is_burst):
        cycles += count * (steps + sum(hold for hold, _ in issued))
        backlog = after
    return cycles, backlog
