"""Cycles of several cores beside one: every model by sample and by layer, simulated, with every byte compared.

    python bench/cores.py --config ecp5-85k --cores 2 4 -- MODEL...

A line for each: cycles measured and predicted, and how many times one core's inferences a second (by sample), or which
part of one core's cycles (by layer).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lutterfly.golden.presets import DEFAULT_PRESET
from lutterfly.host.files.configuration import find_config
from lutterfly.host.program import SpreadBy
from lutterfly.host.session.compare import Verification
from lutterfly.host.session.verify import verify


def measured(model: Path, config: str, cores: int, spread_by: SpreadBy | None) -> Verification:
    """One inference of all cores."""
    samples = cores if spread_by is SpreadBy.SAMPLE else 1
    return verify(model, find_config(config, cores), samples, spread_by=spread_by)


def line(model: Path, cores: int, found: Verification, alone: int) -> str:
    """Return a line of results, compared with the cycles of one core."""
    cycles, predicted = found.cycles, found.program.predicted_cycles
    text = f"{model.stem:<12} {cores} cores  {cycles:>10,} cycles"
    text += f", predicted {predicted:>10,} ({predicted / cycles - 1:+.2%})"
    if found.program.shares > 1:
        ratio = f"by sample: {cores * alone / cycles:.2f} times one core's throughput"
    else:
        ratio = f"by layer: {cycles / alone:.3f} of one core's cycles"
    return f"{text}  {ratio}; {found.mismatched_bytes} of {found.bytes:,} bytes differ"


def main() -> int:
    """Print a line for each model, number of cores and way to spread it; 1 if bytes differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--config", default=DEFAULT_PRESET)
    parser.add_argument("--cores", nargs="+", type=int, default=[2])
    options, wrong = parser.parse_args(), 0
    for model in options.models:
        one = measured(model, options.config, 1, None)
        print(f"{model.stem:<12} 1 core   {one.cycles:>10,} cycles", flush=True)
        for cores in options.cores:
            for spread_by in SpreadBy:
                found = measured(model, options.config, cores, spread_by)
                print(line(model, cores, found, one.cycles), flush=True)
                wrong += found.mismatched_bytes
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
