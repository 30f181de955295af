"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...golden.presets import PRESETS

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
