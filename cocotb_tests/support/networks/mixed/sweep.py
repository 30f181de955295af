r"""Try many mixed networks, and say what became of them.

    PYTHONPATH=cocotb_tests/support .venv/bin/python -m networks.mixed.sweep --configs tiny,least \
        --first 0 --last 999 [--results FILE]

Results are appended to a file of JSON lines, one for each network; what stands there is not tried again.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from cocotb_tests.support.networks.mixed.configurations import CONFIGS, DRAWN
from cocotb_tests.support.networks.mixed.features import Meetings
from cocotb_tests.support.networks.mixed.trial import Trial, attempt, summary


def main() -> None:
    """Try the networks that have no result yet, and print the sums."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--configs",
        default="tiny",
        help=f"names, with commas: {', '.join(CONFIGS)}, {DRAWN}0 ..., tiny:2:layer, tiny:4:sample:own ...; or all",
    )
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--last", type=int, default=99, help="the last seed, which is tried too")
    parser.add_argument("--results", type=Path, default=Path("mixed.jsonl"))
    parser.add_argument("--summary", action="store_true", help="try nothing")
    options = parser.parse_args()
    names = [*CONFIGS] if options.configs == "all" else options.configs.split(",")
    wanted = {(seed, name) for name in names for seed in range(options.first, options.last + 1)}
    known: dict[tuple[int, str], Trial] = {}
    if options.results.exists():
        for line in options.results.read_text().splitlines():
            trial = Trial(**json.loads(line))
            known[trial.seed, trial.config_name] = trial
    for key in sorted(wanted - known.keys()) if not options.summary else ():
        known[key] = trial = attempt(*key)
        with options.results.open("a") as file:
            file.write(json.dumps(asdict(trial)) + "\n")
        if trial.refused or trial.problem or trial.late:
            print(f"{trial.text}: {trial.refused or trial.problem or '; '.join(trial.late)}", flush=True)
    tried = [known[key] for key in sorted(wanted & known.keys())]
    print(summary(tried))
    meetings = Meetings()
    for trial in tried:
        meetings.sample(trial.features)
    print("pairs of features that no network has:", "; ".join(meetings.holes()) or "none")


if __name__ == "__main__":
    main()
