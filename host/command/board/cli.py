"""The command lines that generate, export and build hardware, load it into boards and test them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ....golden.presets import DEFAULT_PRESET
from ...files.configuration import find_config
from ...files.terminal import showing
from ..answer import finish, reporting
from ..models import synth as measure
from ..options import Batch, BoardName, ConfigOption, Cores, DeviceConfig, Json, Model, OtherConfig, Spread
from ..target import Target
from . import commands, devices, integration

#: The board or configuration that the twin simulates.
DEFAULT_BOARD = "ulx3s-85f"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (verilog, export, synth, bitstream, flash, selftest, twin):
        app.command()(command)


def verilog(
    output: Annotated[Path, typer.Option("--output", "-o", help="The Verilog file.", show_default=False)],
    core: Annotated[
        bool, typer.Option("--core", help="Experimental: also write a core file for FuseSoC beside it.")
    ] = False,
    vivado: Annotated[
        bool,
        typer.Option(
            "--vivado",
            help="Experimental, no Vivado has run it: also write a Tcl script beside it, which puts it into a Zynq.",
        ),
    ] = False,
    trace: Annotated[
        bool, typer.Option("--trace", help="With pins that tell a simulator what happens inside.")
    ] = False,
    config: ConfigOption = DEFAULT_PRESET,
    cores: Cores = None,
    as_json: Json = False,
) -> None:
    """Generate the accelerator as Verilog."""
    with reporting(as_json), showing(enabled=not as_json) as progress:
        finish(
            integration.verilog(output, find_config(config, cores), progress, core=core, vivado=vivado, trace=trace),
            as_json,
        )


def export(
    model: Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder.", show_default=False)],
    name: Annotated[str, typer.Option(help="What the model and its files are called in C.")] = "model",
    arena_bytes: Annotated[
        int | None,
        typer.Option(
            help="Size of the arena; where it does not hold the whole program, constants are loaded in stages. By "
            "default that on the chip, or as much as the program takes.",
            min=1,
            show_default=False,
        ),
    ] = None,
    batch: Batch = None,
    spread: Spread = None,
    config: ConfigOption = DEFAULT_PRESET,
    cores: Cores = None,
    as_json: Json = False,
) -> None:
    """Write a program as C, with a driver in C99 that needs no operating system, and an example."""
    with reporting(as_json), showing(enabled=not as_json) as progress:
        target = Target.of(config, cores, spread, batch)
        finish(integration.export(model, output, name, arena_bytes, target, progress), as_json)


def synth(
    device: Annotated[
        str, typer.Option(help="What to place and route for: ecp5-85k, ecp5-45k, ecp5-25k, gw5a-138.")
    ] = "ecp5-85k",
    speed: Annotated[
        int | None,
        typer.Option(metavar="GRADE", help="The device's speed grade. By default the slowest.", show_default=False),
    ] = None,
    mhz: Annotated[
        float | None,
        typer.Option(metavar="MHZ", help="The clock to reach. By default the device's.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the first run of place and route.", min=1)] = 1,
    seeds: Annotated[int, typer.Option(help="Runs of place and route; the clock is their median.", min=1)] = 3,
    config: OtherConfig = None,
    cores: Cores = None,
    as_json: Json = False,
) -> None:
    """Measure area and clock with yosys and nextpnr; fails if they miss the device's budget."""
    with reporting(as_json):
        with showing(enabled=not as_json) as progress:
            answered = measure(device, speed, mhz, range(seed, seed + seeds), config, cores, progress)
        finish(answered, as_json)


def bitstream(
    board: BoardName,
    output: Annotated[Path, typer.Option("--output", "-o", help="The bitstream.", show_default=False)],
    seed: Annotated[int, typer.Option(help="Of the first run of place and route.", min=1)] = 1,
    seeds: Annotated[
        int, typer.Option(help="Runs at most: the first that meets the board's clock is taken.", min=1)
    ] = 3,
    config: OtherConfig = None,
    as_json: Json = False,
) -> None:
    """Build the accelerator's bitstream for a board, with yosys and nextpnr; fails if it misses the board's clock."""
    with reporting(as_json):
        with showing(enabled=not as_json) as progress:
            answered = commands.bitstream(board, output, range(seed, seed + seeds), config, progress)
        finish(answered, as_json)


def flash(
    file: Annotated[Path, typer.Argument(help="A bitstream that `bitstream` made.", show_default=False)],
    board: BoardName,
    persist: Annotated[
        bool, typer.Option("--persist", help="Into the board's flash: it stays when the board is switched off.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Load a bitstream into a board through its cable, with openFPGALoader."""
    with reporting(as_json):
        with showing(enabled=not as_json) as progress:
            answered = commands.flash(board, file, progress, persist=persist)
        finish(answered, as_json)


def selftest(
    device: Annotated[str, typer.Option(metavar="uart:PORT", show_default=False, help="The board's serial port.")],
    samples: Annotated[int, typer.Option(help="Digits to classify.", min=1)] = 8,
    config: DeviceConfig = None,
    as_json: Json = False,
) -> None:
    """Test a board: who is there, its memory, its link, inference on digits, and its clock."""
    with reporting(as_json):
        with showing(enabled=not as_json) as progress:
            answered = devices.selftest(device, samples, config, progress)
        finish(answered, as_json)


def twin(board: BoardName = DEFAULT_BOARD, config: OtherConfig = None, as_json: Json = False) -> None:
    """Simulate a board with its serial port: a terminal that `--device` takes, until this is interrupted."""
    with reporting(as_json):
        with showing(enabled=not as_json) as progress:
            served = devices.twin(board, config, progress)
        served.serve(lambda answered: finish(answered, as_json))
