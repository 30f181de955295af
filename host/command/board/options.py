"""Options for boards."""

from __future__ import annotations

from typing import Annotated

import typer

from ....boards import BOARDS
from ....golden.presets import DEFAULT_PRESET, PRESETS
from .opening import FORMS

BoardName = Annotated[
    str, typer.Option("--board", metavar="NAME", show_default=False, help=f"The board: {', '.join(BOARDS)}.")
]

Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar=FORMS.replace(" or ", "|"),
        show_default=False,
        help="A board at a serial port, as uart:/dev/ttyUSB0, or its twin; or an accelerator on this machine's bus, as "
        "uio:/dev/uio0,/dev/udmabuf0; by default the accelerator is simulated.",
    ),
]

DeviceConfig = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="NAME|FILE",
        show_default=False,
        help=f"Configuration: {', '.join(PRESETS)}, or a JSON file; by default the board's, and {DEFAULT_PRESET} where "
        "there is none.",
    ),
]
