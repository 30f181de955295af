"""The command line: quantises, checks, compiles, runs, verifies and generates; every command can answer in JSON.

Exit codes: 0 done; 1 bytes differ, a budget is missed or the accelerator stopped; 2 the input is wrong, a tool is
missing or the answer cannot be written; 3 all bytes are right, but not the predicted cycles.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from ...golden.presets import DEFAULT_PRESET, PRESETS
from ..driver.driver import AcceleratorError, HardwareError
from ..files import standard_streams
from ..files.progress import showing
from ..files.standard_streams import OutputError, answer, complain
from ..simulation.simulator import SimulationError
from ..simulation.toolchain import ToolError
from . import commands
from .answer import Answer

FAILED, WRONG_INPUT, MISPREDICTED = 1, 2, 3
#: As shells report a process that a signal has ended: SIGINT, SIGPIPE.
INTERRUPTED, UNREAD = 130, 141
#: What typer raises on a wrong command line; it has no public name.
_UsageError = typer.BadParameter.__mro__[1]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Run quantised neural networks on a generated FPGA accelerator, with the bytes of ONNX Runtime.",
    epilog="Exit codes: 0 done; 1 bytes differ, a budget is missed or the accelerator stopped; 2 the input is wrong, a "
    "tool is missing or the answer cannot be written; 3 all bytes are right, but not the predicted cycles (verify).",
)

Model = Annotated[Path, typer.Argument(help="An ONNX file, or a program that `compile` made.", show_default=False)]
ConfigOption = Annotated[
    str, typer.Option("--config", metavar="NAME|FILE", help=f"Configuration: {', '.join(PRESETS)}, or a JSON file.")
]
Batch = Annotated[
    int | None,
    typer.Option(
        help="Samples of an inference: those of a fully connected network share weights that do not stay. By default "
        "1, or what a program was compiled for.",
        min=1,
        show_default=False,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output; on an error, an object with `error`.")
]


class _FailedError(Exception):
    """The command did its work, and what it checked is wrong.

    Attributes
    ----------
    code : int
        The exit code.
    """

    def __init__(self, code: int):
        super().__init__(code)
        self.code = code


@contextlib.contextmanager
def _reporting(as_json: bool) -> Iterator[None]:
    """Turn what may go wrong into one line and an exit code."""
    try:
        yield
    except _FailedError as failed:
        raise typer.Exit(failed.code) from None
    except (AcceleratorError, HardwareError, SimulationError) as error:
        raise _exit(error, FAILED, as_json) from None
    except (ValueError, TypeError, ToolError, OSError) as error:
        raise _exit(error, WRONG_INPUT, as_json) from None
    except MemoryError as error:
        reason = f"this machine's memory is too small for it: {error}; choose a smaller network or batch"
        raise _exit(MemoryError(reason), WRONG_INPUT, as_json) from None


def _exit(error: Exception, code: int, as_json: bool) -> typer.Exit:
    _refuse(str(error), as_json=as_json)
    return typer.Exit(code)


def _refuse(message: str, *, as_json: bool) -> None:
    if as_json:
        answer(json.dumps({"error": message}))
    else:
        complain(f"lutterfly: {message}")


def _finish(answered: Answer, as_json: bool) -> None:
    """Print an answer, and fail if what was checked is wrong."""
    answer(json.dumps(answered.values) if as_json else answered.text)
    if not answered.is_right:
        raise _FailedError(FAILED)
    if not answered.is_predicted:
        raise _FailedError(MISPREDICTED)


def _show_version(wanted: bool) -> None:
    if wanted:
        answer(f"lutterfly {importlib.metadata.version('lutterfly')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """What stands in front of a command."""


@app.command()
def check(model: Model, config: ConfigOption = DEFAULT_PRESET, as_json: Json = False) -> None:
    """Show the layers, and where each runs; a model that is refused is refused with the reason."""
    with _reporting(as_json), showing(enabled=not as_json) as progress:
        _finish(commands.check(model, config, progress), as_json)


@app.command("compile")
def compile_(
    model: Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="The program file.", show_default=False)],
    batch: Batch = None,
    config: ConfigOption = DEFAULT_PRESET,
    as_json: Json = False,
) -> None:
    """Compile an ONNX file to a program for one configuration."""
    with _reporting(as_json), showing(enabled=not as_json) as progress:
        _finish(commands.compile_(model, output, batch, config, progress), as_json)


@app.command()
def quantize(
    model: Annotated[Path, typer.Argument(help="An ONNX file of a float network.", show_default=False)],
    calibrate: Annotated[
        Path,
        typer.Option(
            metavar="FILE.npz",
            show_default=False,
            help="Typical inputs: a NumPy archive with an array for each input; the first axis counts samples.",
        ),
    ],
    test: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npz",
            show_default=False,
            help="Other inputs, to measure the error on; by default every tenth sample is held out for that.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The quantised ONNX file; by default MODEL_int8.onnx.", show_default=False),
    ] = None,
    config: ConfigOption = DEFAULT_PRESET,
    as_json: Json = False,
) -> None:
    """Quantise a float ONNX file for the accelerator; fails if the accelerator does not run the result."""
    with _reporting(as_json):
        with showing(enabled=not as_json) as progress:
            answered = commands.quantize(model, calibrate, test, output, config, progress)
        _finish(answered, as_json)


@app.command()
def run(
    model: Model,
    inputs: Annotated[
        list[str],
        typer.Option(
            "--input",
            metavar="[NAME=]FILE",
            show_default=False,
            help="A NumPy file for an input; the first axis is the batch.",
        ),
    ],
    outputs: Annotated[
        list[str] | None,
        typer.Option(
            "--output", "-o", metavar="[NAME=]FILE", show_default=False, help="Where an output goes, as a NumPy file."
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html",
            show_default=False,
            help="Write a page that shows where cycles and bytes go, layer by layer (needs the extra `report`).",
        ),
    ] = None,
    batch: Batch = None,
    config: ConfigOption = DEFAULT_PRESET,
    as_json: Json = False,
) -> None:
    """Run inference on the simulated accelerator."""
    with _reporting(as_json), showing(enabled=not as_json) as progress:
        _finish(commands.run(model, inputs, outputs or [], report, batch, config, progress), as_json)


@app.command()
def verify(
    model: Model,
    samples: Annotated[int, typer.Option(help="Random inputs.", min=1)] = 8,
    seed: Annotated[int, typer.Option(help="Of the random inputs.", min=0)] = 0,
    batch: Batch = None,
    config: ConfigOption = DEFAULT_PRESET,
    as_json: Json = False,
) -> None:
    """Compare the simulated accelerator, the golden model and ONNX Runtime, byte by byte and cycle by cycle.

    Exits with 1 if bytes differ, and with 3 if all bytes are right but a prediction of cycles is off.
    """
    with _reporting(as_json):
        with showing(enabled=not as_json) as progress:
            answered = commands.verify(model, samples, seed, batch, config, progress)
        _finish(answered, as_json)


@app.command()
def verilog(
    output: Annotated[Path, typer.Option("--output", "-o", help="The Verilog file.", show_default=False)],
    config: ConfigOption = DEFAULT_PRESET,
    as_json: Json = False,
) -> None:
    """Generate the accelerator as Verilog."""
    with _reporting(as_json), showing(enabled=not as_json) as progress:
        _finish(commands.verilog(output, config, progress), as_json)


@app.command()
def table(
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="SCHEME",
            show_default=False,
            help="Of the codes: qM.N or uqM.N (fixed point), or int8, uint8, int16 or uint16 with :scale=S, as "
            "int8:scale=0.05,zero_point=-3; behind signed ones also symmetric (the least code is unused).",
        ),
    ],
    target: Annotated[str, typer.Option("--to", metavar="SCHEME", show_default=False, help="Of the results' codes.")],
    operators: Annotated[
        list[str] | None,
        typer.Option(
            "--operator",
            metavar="NAME[:OPTION=VALUE,...]",
            show_default=False,
            help="An ONNX operator with its attributes, as LeakyRelu:alpha=0.1; several make a chain.",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(metavar="FILE.onnx", show_default=False, help="An ONNX file of a chain of pointwise operators."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", show_default=False, help="The Verilog file; without it, codes are shown."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html",
            show_default=False,
            help="Write a page that shows curve, codes and error (needs the extra `report`).",
        ),
    ] = None,
    block_rams: Annotated[
        str | None,
        typer.Option(
            metavar="FAMILY=COUNT",
            show_default=False,
            help="The block RAMs that there are, as ecp5=56 or xilinx=50: a table that takes more is refused.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a table of pointwise operators from codes to codes, and a ROM of it in Verilog."""
    with _reporting(as_json):
        with showing(enabled=not as_json) as progress:
            answered = commands.table(operators or [], model, source, target, output, plot, block_rams, progress)
        _finish(answered, as_json)


@app.command()
def synth(
    device: Annotated[str, typer.Option(help="What to place and route for.")] = "ecp5-85k",
    seeds: Annotated[int, typer.Option(help="Runs of place and route; the clock is their median.", min=1)] = 3,
    config: ConfigOption = DEFAULT_PRESET,
    as_json: Json = False,
) -> None:
    """Measure area and clock with yosys and nextpnr; fails if they miss the device's budget."""
    with _reporting(as_json):
        with showing(enabled=not as_json) as progress:
            answered = commands.synth(device, seeds, config, progress)
        _finish(answered, as_json)


@app.command()
def demo(
    form: Annotated[str, typer.Option(help="Form of the model: qdq, qop or uint8.")] = "qdq",
    config: ConfigOption = DEFAULT_PRESET,
    as_json: Json = False,
) -> None:
    """Classify handwritten digits on the simulated accelerator, next to ONNX Runtime."""
    with _reporting(as_json):
        with showing(enabled=not as_json) as progress:
            answered = commands.demo(form, config, progress)
        _finish(answered, as_json)


@contextlib.contextmanager
def _unwinding() -> Iterator[None]:
    """Let signals that end a process on the spot end it as an exception does: what is half built goes away."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    changed = []
    # Only the main thread may say what signals do.
    if threading.current_thread() is threading.main_thread():
        changed = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in changed:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line on ``arguments``, by default the process's own; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        standard_streams.prepare()
        with _unwinding():
            return _run(words)
    except OutputError as error:
        # Who closes the pipe has seen enough.
        if error.is_unread:
            return UNREAD
        complain(f"lutterfly: {error}")
        return WRONG_INPUT


def _run(words: list[str]) -> int:
    try:
        return app(words, prog_name="lutterfly", standalone_mode=False) or 0
    except _UsageError as error:
        # Also what stands wrong on the command line is an object for scripts.
        if "--json" in words:
            answer(json.dumps({"error": error.format_message()}))
        else:
            with contextlib.suppress(OSError):
                error.show()
        return WRONG_INPUT
    except (KeyboardInterrupt, typer.Abort):
        complain("lutterfly: interrupted")
        return INTERRUPTED
    except OSError as error:
        # Only help is written by others.
        raise standard_streams.failure(error) from error
