"""Break the project in single places, and see whether a test notices.

    .venv/bin/python -m tools.mutation --draw 100 --tier test

Each mutant is a copy of the tree with one place changed: drawn by a seed from those that operators give (``--draw``),
or listed in ``mutants.toml`` (``--listed``). The nearest tests run first, and the first that fails ends it. Results are
appended to a file of JSON lines; mutants with a result are not run again, except survivors with further tiers of tests.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

from .mutants import ROOT, Mutant, drawn, listed
from .workplace import TIERS, Result, Workplace

#: The outcome of a mutant that no test noticed.
_MISSED = ("survived", "hung")


def main() -> None:
    """Run the mutants that have no result yet, and print the table."""
    options = _options()
    mutants = (drawn(options.draw, options.seed) if options.draw else []) + (listed() if options.listed else [])
    wanted = [mutant for mutant in mutants if re.search(options.only, mutant.name)]
    if options.list:
        print("\n".join(mutant.name for mutant in wanted))
        return
    if any(mutant.folder == "train" for mutant in wanted) and importlib.util.find_spec("torch") is None:
        raise SystemExit("train/ needs PyTorch, or no test runs: `make test-train` once, or --only '^(?!train)'")
    # This ends started programs as well, and removes the copies.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    known: dict[str, Result] = {}
    if options.results.exists():
        for line in options.results.read_text().splitlines():
            result = Result(**json.loads(line))
            known[result.name] = result
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        workplace = Workplace(Path(folder), models=options.models.resolve(), jobs=options.jobs)
        for mutant in wanted:
            tiers = _tiers_left(known.get(mutant.name), options.tier, again=options.again)
            if not tiers:
                continue
            began = time.monotonic()
            result = replace(workplace.judge(mutant, tiers), seconds=round(time.monotonic() - began, 1))
            known[mutant.name] = result
            with options.results.open("a") as file:
                file.write(json.dumps(asdict(result)) + "\n")
            print(f"{result.outcome:9} {result.tier:7} {result.seconds:6.1f} s  {result.name}  {result.by}", flush=True)
    _table([(mutant, known[mutant.name]) for mutant in wanted])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__.splitlines()[0])
    parser.add_argument("--draw", type=int, default=0, metavar="COUNT", help="so many that the operators give")
    parser.add_argument("--seed", type=int, default=1, help="which of them (default: 1)")
    parser.add_argument("--listed", action="store_true", help="those of the list")
    parser.add_argument("--tier", choices=TIERS, default="test", help="how far to go for a test (default: test)")
    parser.add_argument("--only", default="", metavar="PATTERN", help="only mutants whose name this pattern finds")
    parser.add_argument("--again", action="store_true", help="run those again that were not caught")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--jobs", type=int, default=2, help="tests side by side where all are run (default: 2)")
    parser.add_argument("--results", type=Path, default=Path("mutations.jsonl"))
    parser.add_argument("--models", type=Path, default=ROOT / ".." / "shared" / "models")
    options = parser.parse_args()
    if not options.draw and not options.listed:
        parser.error("name the mutants: --draw COUNT, --listed or both")
    return options


def _tiers_left(before: Result | None, farthest: str, *, again: bool) -> tuple[str, ...]:
    """Return the tiers that have not judged a mutant yet, up to the last requested one."""
    wanted = TIERS[: TIERS.index(farthest) + 1]
    if before is None or (again and before.outcome in _MISSED):
        return wanted
    return wanted[TIERS.index(before.tier) + 1 :] if before.outcome == "survived" else ()


def _table(results: list[tuple[Mutant, Result]]) -> None:
    """Print the outcomes of the mutants, by folder, and those that no test noticed with their reasons."""
    caught = [f"caught by {tier}" for tier in TIERS]
    columns = (*caught, *_MISSED, "equivalent", "stillborn")
    rows: dict[str, Counter[str]] = {}
    for mutant, result in results:
        outcome = f"caught by {result.tier}" if result.outcome == "caught" else result.outcome
        if outcome == "same" or (outcome in _MISSED and mutant.equivalent):
            outcome = "equivalent"
        rows.setdefault(mutant.folder, Counter())[outcome] += 1
    total = sum(rows.values(), Counter())
    print(f"| folder | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
    for folder, counts in [*sorted(rows.items()), ("**all**", total)]:
        print(f"| {folder} | {' | '.join(str(counts[column]) for column in columns)} |")
    noticed = sum(total[column] for column in caught)
    judged = noticed + sum(total[column] for column in _MISSED)
    by_make_test = noticed - total[caught[-1]]
    print(f"Of {judged} that are neither equivalent nor stillborn {noticed} are caught, {by_make_test} by make test")
    for mutant, result in results:
        if result.outcome in _MISSED and not mutant.equivalent:
            print(f"{result.outcome} ({result.tier}): {mutant.name}: {mutant.uncaught or 'NO REASON GIVEN'}")


if __name__ == "__main__":
    main()
