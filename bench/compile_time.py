"""Measure what compiling takes, in seconds and in memory, against the layers of networks.

    .venv/bin/python -m bench.compile_time [--models FOLDER] [NETWORK ...]

Networks are those of MLPerf Tiny, MobileNet v1, ResNet-50 and ResNet-101 on images of 224x224x3 with random weights,
and chains of equal convolutions. Each is compiled in a process of its own: the peak is that of the whole process,
Python and its libraries included. Seconds are processor seconds, without the start of the process.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from lutterfly.golden.presets import DEFAULT_PRESET, PRESETS
from lutterfly.host.compiler import compile_model

MODELS = Path(__file__).resolve().parents[1] / ".." / "shared" / "models"
TINY = ("ad", "kws", "ic", "vww")
LENGTHS = (10, 20, 40, 80, 160)
#: The module and the function that make a network, and what that is given.
MADE: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "mobilenet_v1": ("cocotb_tests.support.networks.large", "mobilenet", ()),
    **{f"resnet{number}": ("cocotb_tests.support.networks.large", "resnet", (number,)) for number in (50, 101)},
    **{f"chain{layers}": ("cocotb_tests.support.networks.large", "chain", (layers,)) for layers in LENGTHS},
}
NAMES = (*TINY, *MADE)

Result = TypeVar("Result")


@dataclass(frozen=True)
class Compiled:
    """The cost of compiling a network.

    Attributes
    ----------
    layers, commands : int
        Executed layers, and commands of both queues.
    seconds : float
        Processor seconds.
    peak_mb : float
        Most memory of the process, in 10**6 bytes.
    """

    layers: int
    commands: int
    seconds: float
    peak_mb: float


def write(name: str, models: Path, path: Path) -> None:
    """Write a network to a file."""
    if name in TINY:
        path.write_bytes((models / f"{name}_qdq.onnx").read_bytes())
        return
    module, function, arguments = MADE[name]
    path.write_bytes(getattr(importlib.import_module(module), function)(*arguments))


def measure(path: Path, config: str) -> Compiled:
    """Compile a network in this process, which has done nothing else."""
    began = time.process_time()
    program = compile_model(path.read_bytes(), PRESETS[config], path.stem)
    seconds = time.process_time() - began
    outlines = [queue for core in program.cores for queue in (core.outline.dma, core.outline.compute)]
    # Linux gives it in units of 1,024 bytes.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Compiled(len(program.layers), sum(len(queue.layers) for queue in outlines), seconds, peak / 1e6)


def apart(function: Callable[..., Result], *arguments: object) -> Result:
    """Return the result of a function in a new process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def row(name: str, found: Compiled, before: Compiled | None) -> str:
    """A line of a Markdown table, for a chain with how much more than the chain of half its length takes."""
    grown = "" if before is None else f"{found.seconds / before.seconds:.2f}, {found.peak_mb / before.peak_mb:.2f}"
    return (
        f"| {name} | {found.layers} | {found.commands:,} | {found.seconds:.1f} | {found.seconds / found.layers:.3f} "
        f"| {1000 * found.seconds / found.commands:.2f} | {found.peak_mb:.0f} | {grown} |"
    )


def main() -> None:
    """Print a Markdown table with a line for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NETWORK", help=", ".join(NAMES))
    parser.add_argument("--models", type=Path, default=MODELS, help="folder of the MLPerf Tiny networks")
    parser.add_argument("--config", choices=PRESETS, default=DEFAULT_PRESET)
    given = parser.parse_args()
    for name in given.names:
        if name not in NAMES:
            parser.error(f"a network must be one of {', '.join(NAMES)}, not {name}")
    print("| network | layers | commands | seconds | a layer | milliseconds a command | peak, MB | times the half's |")
    print("|---|---|---|---|---|---|---|---|")
    found: dict[str, Compiled] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in given.names:
            path = Path(folder) / f"{name}.onnx"
            apart(write, name, given.models, path)
            found[name] = apart(measure, path, given.config)
            half = f"chain{int(name[5:]) // 2}" if name.startswith("chain") else ""
            print(row(name, found[name], found.get(half)), flush=True)


if __name__ == "__main__":
    main()
