"""What became of mutants, and the table of it."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass

from mutation import mutants
from mutation.mutants import HARDWARE, SOFTWARE


@dataclass(frozen=True)
class Result:
    """What became of a mutant.

    Attributes
    ----------
    outcome : str
        "caught", "stillborn" (it cannot be built or imported), "same" (the Verilog does not differ), "survived" or
        "hung".
    by : str
        The test that failed.
    """

    name: str
    file: str
    outcome: str
    by: str = ""
    seconds: float = 0


def table(results: list[Result], out=sys.stdout) -> None:
    """Print what became of the mutants, by file."""
    equivalent, uncaught = mutants.reasons("equivalent"), mutants.reasons("uncaught")
    rows: dict[str, Counter] = {}
    for result in results:
        outcome = result.outcome
        if outcome == "same" or (outcome in ("survived", "hung") and result.name in equivalent):
            outcome = "equivalent"
        rows.setdefault(result.file, Counter())[outcome] += 1
    columns = ("caught", "survived", "hung", "equivalent", "stillborn")
    print(f"| file | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}", file=out)
    for file, counts in sorted(rows.items()):
        print(f"| {file} | {' | '.join(str(counts[column]) for column in columns)} |", file=out)
    for folders in (HARDWARE, SOFTWARE, (*HARDWARE, *SOFTWARE)):
        total = sum((counts for file, counts in rows.items() if file.startswith(folders)), Counter())
        judged = total["caught"] + total["survived"] + total["hung"]
        print(f"| **{', '.join(folders)}** | {' | '.join(str(total[column]) for column in columns)} |", file=out)
        print(f"{total['caught']} of {judged} that are neither equivalent nor stillborn are caught", file=sys.stderr)
    for result in results:
        if result.outcome in ("survived", "hung") and result.name not in equivalent:
            print(f"{result.outcome}: {result.name}: {uncaught.get(result.name, 'NO REASON GIVEN')}", file=out)
