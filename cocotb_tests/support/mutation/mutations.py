"""Break hardware, golden functions, compiler and driver in single places, and see whether a test notices.

    PYTHONPATH=cocotb_tests/support .venv/bin/python -m mutation.mutations [--only PATTERN] [--near] [--again]
        [--results FILE]

Each mutant is a copy of the tree with one place of ``hdl/``, ``golden/`` or ``host/`` changed: those of
``mutants.toml``, and a sample of those that operators give (``mutants.py``), of every file of the hardware and of every
folder of the others. The tests that are nearest to the place (``mutant_tests.py``) run first, and the first that fails
ends it. Results are appended to a file of JSON lines, one for each mutant; what stands there is not run again.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

from mutation import mutants
from mutation.mutant_results import Result, table
from mutation.mutants import HARDWARE, LISTED_ONLY, ROOT, SOFTWARE, Mutant
from mutation.workplace import Workplace

#: For every file of the hardware, or folder of the others, so many mutants, and the rest in proportion to those that
#: there are.
LEAST = 3
SEED = 1


def chosen(hardware: int, software: int) -> list[Mutant]:
    """The mutants to run: those of the list, and so many others of the hardware and of all else; none for 0."""
    counts = {folders: count for folders, count in ((HARDWARE, hardware), (SOFTWARE, software)) if count}
    listed = tuple(folder for folders in counts for folder in folders) + (LISTED_ONLY if software else ())
    found = [mutant for mutant in mutants.named() if mutant.file.startswith(listed)]
    for folders, count in counts.items():
        groups: dict[str, list[Mutant]] = {}
        for name, path in mutants.sources(*folders).items():
            group = name if folders is HARDWARE else str(Path(name).parent)
            groups.setdefault(group, []).extend(mutants.generated(name, path.read_text()))
        total = sum(map(len, groups.values()))
        rest = max(count - LEAST * len(groups), 0)
        for candidates in groups.values():
            found += mutants.sample(candidates, LEAST + round(rest * len(candidates) / total), SEED)
    return found


def main() -> None:
    """Run the mutants that have no result yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--hardware", type=int, default=200, help="mutants of hdl beside the list's, 0 for none (default: 200)"
    )
    parser.add_argument(
        "--software", type=int, default=160, help="of golden and host beside the list's, 0 for none (default: 160)"
    )
    parser.add_argument("--only", default="", help="only mutants whose name this regular expression finds")
    parser.add_argument("--near", action="store_true", help="leave out what is farther and takes longer")
    parser.add_argument("--again", action="store_true", help="run those again that were not caught")
    parser.add_argument("--passing", action="store_true", help="all tests are known to pass without a mutant")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--results", type=Path, default=Path("mutations.jsonl"))
    parser.add_argument("--models", type=Path, default=ROOT / ".." / "shared" / "models")
    options = parser.parse_args()
    wanted = [mutant for mutant in chosen(options.hardware, options.software) if re.search(options.only, mutant.name)]
    if options.list:
        print("\n".join(mutant.name for mutant in wanted))
        return
    # So that the programs that were started end as well, and the copies go.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    known: dict[str, Result] = {}
    if options.results.exists():
        for line in options.results.read_text().splitlines():
            result = Result(**json.loads(line))
            known[result.name] = result
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        workplace = Workplace(Path(folder), options.models.resolve(), passing=options.passing)
        for mutant in wanted:
            before = known.get(mutant.name)
            if before and not (options.again and before.outcome in ("survived", "hung")):
                continue
            began = time.monotonic()
            result = replace(workplace.judge(mutant, far=not options.near), seconds=round(time.monotonic() - began, 1))
            known[mutant.name] = result
            with options.results.open("a") as file:
                file.write(json.dumps(asdict(result)) + "\n")
            print(f"{result.outcome:9} {result.seconds:6.1f} s  {result.name}  {result.by}", flush=True)
    table([known[mutant.name] for mutant in wanted])


if __name__ == "__main__":
    main()
