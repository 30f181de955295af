"""Hash generated Verilog and programs, to check that a change leaves them the same.

    python bench/hashes.py MODEL... > before
    python bench/hashes.py MODEL... | diff before -

The Verilog of every preset without its comments and the names of its modules' files, and the program of every model for
every preset that takes it.
"""

from __future__ import annotations

import argparse
import hashlib
import re
from pathlib import Path

from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import compile_model
from lutterfly.host.simulation import build
from lutterfly.host.simulation.build import IP

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\(\*.*?\*\)", re.DOTALL)
#: Matches an empty line, which is left where attributes are removed.
_EMPTY = re.compile(r"\s*\n")


def verilog_digest(preset: str) -> str:
    """SHA-256 of the Verilog of a preset, as hexadecimal digits."""
    text = _EMPTY.sub("\n", _COMMENT.sub("", build.verilog(PRESETS[preset], top=IP)))
    return hashlib.sha256(text.encode()).hexdigest()


def program_digest(model: Path, preset: str) -> str:
    """SHA-256 of the program of a model for a preset, or why there is none."""
    try:
        return hashlib.sha256(compile_model(model.read_bytes(), PRESETS[preset], model.stem).to_bytes()).hexdigest()
    except ValueError as error:
        return str(error)


def main() -> None:
    """Print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", type=Path)
    options = parser.parse_args()
    for preset in PRESETS:
        print(f"{verilog_digest(preset)}  {preset}.v", flush=True)
    for model in options.models:
        for preset in PRESETS:
            print(f"{program_digest(model, preset)}  {model.name} on {preset}", flush=True)


if __name__ == "__main__":
    main()
