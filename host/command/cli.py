"""The command line: quantises, checks, compiles, runs, verifies and generates; every command can answer in JSON.

Exit codes: 0 done; 1 bytes differ, a budget is missed or the accelerator stopped; 2 the input is wrong, a tool is
missing or the answer cannot be written; 3 all bytes are right, but not the predicted cycles.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...golden.presets import DEFAULT_PRESET
from ..backend import DEFAULT_BACKEND
from ..files.terminal import showing
from . import accuracy, models, quantisation
from .answer import finish, reporting
from .board import commands
from .board.cli import register
from .options import (
    Backend,
    Batch,
    BlockRams,
    Calibrate,
    CheckedBoard,
    CheckedConfig,
    CheckedModel,
    ConfigOption,
    Cores,
    Device,
    DeviceConfig,
    FloatModel,
    Inputs,
    Json,
    Labels,
    LayerPlot,
    Limit,
    Mhz,
    Model,
    Operators,
    Outputs,
    PerLayer,
    Plot,
    QuantisedFile,
    Report,
    Samples,
    SourceScheme,
    Spread,
    Supported,
    TestSamples,
    Version,
)
from .target import Target

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Run quantised neural networks on a generated FPGA accelerator, with the bytes of ONNX Runtime.",
    epilog="Exit codes: 0 done; 1 bytes differ, a budget is missed or the accelerator stopped; 2 the input is wrong, a "
    "tool is missing or the answer cannot be written; 3 all bytes are right, but not the predicted cycles (verify).",
)


@app.callback()
def _options(version: Version = False) -> None:
    """Options before a command."""


@app.command()
def check(
    model: CheckedModel = None,
    supported: Supported = False,
    spread: Spread = None,
    config: CheckedConfig = None,
    board: CheckedBoard = None,
    cores: Cores = None,
    mhz: Mhz = None,
    as_json: Json = False,
) -> None:
    """Show the layers, and where each runs; a model that cannot run is refused with the reason."""
    with reporting(as_json), showing(enabled=not as_json) as progress:
        if board is None:
            target = Target.of(config, cores, spread, mhz=mhz)
            finish(models.check(model, target, progress, supported=supported), as_json)
            return
        if model is None or supported or (config, cores, spread) != (None, None, None):
            raise ValueError(
                "board must be given with MODEL and without --supported, --config, --cores and --spread: "
                "a board has its own configuration"
            )
        finish(commands.check(model, board, mhz, progress), as_json)


@app.command("compile")
def compile_(
    model: Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="The program file.", show_default=False)],
    batch: Batch = None,
    spread: Spread = None,
    config: ConfigOption = DEFAULT_PRESET,
    cores: Cores = None,
    as_json: Json = False,
) -> None:
    """Compile an ONNX file to a program for one configuration."""
    with reporting(as_json), showing(enabled=not as_json) as progress:
        finish(models.compile_(model, output, Target.of(config, cores, spread, batch), progress), as_json)


@app.command()
def quantize(
    model: Annotated[Path, typer.Argument(help="An ONNX file of a float network.", show_default=False)],
    calibrate: Calibrate,
    test: TestSamples = None,
    output: QuantisedFile = None,
    per_layer: PerLayer = False,
    plot: LayerPlot = None,
    config: ConfigOption = DEFAULT_PRESET,
    as_json: Json = False,
) -> None:
    """Quantise a float ONNX file for the accelerator; fails if the accelerator does not run the result."""
    with reporting(as_json):
        with showing(enabled=not as_json) as progress:
            answered = quantisation.quantize(
                model, calibrate, test, output, config, progress, per_layer=per_layer, plot=plot
            )
        finish(answered, as_json)


@app.command()
def run(
    model: Model,
    inputs: Inputs,
    outputs: Outputs = None,
    report: Report = None,
    backend: Backend = DEFAULT_BACKEND,
    batch: Batch = None,
    spread: Spread = None,
    device: Device = None,
    config: DeviceConfig = None,
    cores: Cores = None,
    mhz: Mhz = None,
    as_json: Json = False,
) -> None:
    """Run inference on the simulated accelerator, on a board, or in the golden functions."""
    with reporting(as_json), showing(enabled=not as_json) as progress:
        with Target.of(config, cores, spread, batch, mhz, device) as target:
            answered = models.run(model, inputs, outputs or [], report, backend, target, progress)
        finish(answered, as_json)


@app.command()
def evaluate(
    model: Model,
    data: Samples,
    labels: Labels,
    float_model: FloatModel = None,
    limit: Limit = None,
    backend: Backend = DEFAULT_BACKEND,
    batch: Batch = None,
    spread: Spread = None,
    device: Device = None,
    config: DeviceConfig = None,
    cores: Cores = None,
    as_json: Json = False,
) -> None:
    """Measure the accuracy of the accelerator beside that of ONNX Runtime; fails if a byte differs from its bytes."""
    with reporting(as_json):
        with (
            showing(enabled=not as_json) as progress,
            Target.of(config, cores, spread, batch, device=device) as target,
        ):
            answered = accuracy.evaluate(model, data, labels, float_model, limit, backend, target, progress)
        finish(answered, as_json)


@app.command()
def verify(
    model: Model,
    samples: Annotated[int, typer.Option(help="Random inputs.", min=1)] = 8,
    seed: Annotated[int, typer.Option(help="Of the random inputs.", min=0)] = 0,
    batch: Batch = None,
    spread: Spread = None,
    device: Device = None,
    config: DeviceConfig = None,
    cores: Cores = None,
    as_json: Json = False,
) -> None:
    """Compare the simulated accelerator, the golden model and ONNX Runtime, byte by byte and cycle by cycle.

    Exits with 1 if bytes differ, and with 3 if all bytes are right but a prediction of cycles is off.
    """
    with reporting(as_json):
        with (
            showing(enabled=not as_json) as progress,
            Target.of(config, cores, spread, batch, device=device) as target,
        ):
            answered = accuracy.verify(model, samples, seed, target, progress)
        finish(answered, as_json)


@app.command()
def table(
    source: SourceScheme,
    target: Annotated[str, typer.Option("--to", metavar="SCHEME", show_default=False, help="Of the results' codes.")],
    operators: Operators = None,
    model: Annotated[
        Path | None,
        typer.Option(metavar="FILE.onnx", show_default=False, help="An ONNX file of a chain of pointwise operators."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", show_default=False, help="The Verilog file; without it, codes are shown."),
    ] = None,
    plot: Plot = None,
    block_rams: BlockRams = None,
    as_json: Json = False,
) -> None:
    """Make a table of pointwise operators from codes to codes, and a ROM of it in Verilog."""
    with reporting(as_json):
        with showing(enabled=not as_json) as progress:
            answered = quantisation.table(operators or [], model, source, target, output, plot, block_rams, progress)
        finish(answered, as_json)


@app.command()
def demo(
    form: Annotated[str, typer.Option(help="Form of the model: qdq, qop or uint8.")] = "qdq",
    config: ConfigOption = DEFAULT_PRESET,
    as_json: Json = False,
) -> None:
    """Classify handwritten digits on the simulated accelerator, next to ONNX Runtime."""
    with reporting(as_json):
        with showing(enabled=not as_json) as progress:
            answered = models.demo(form, config, progress)
        finish(answered, as_json)


register(app)
