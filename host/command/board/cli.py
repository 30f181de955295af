"""The command lines of what builds bitstreams and loads them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ....boards import BOARDS
from ...files.progress import showing
from ..ending import finish, reporting
from ..options import Json, OtherConfig
from . import commands

BoardName = Annotated[
    str, typer.Option("--board", metavar="NAME", show_default=False, help=f"The board: {', '.join(BOARDS)}.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(bitstream)
    app.command()(flash)


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
