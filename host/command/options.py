"""Options of several commands."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Annotated

import typer

from ...boards import BOARDS
from ...golden.presets import DEFAULT_PRESET, PRESETS
from ..backend import BackendName
from ..files.terminal import answer
from ..program import SpreadBy
from .target import FORMS

Model = Annotated[Path, typer.Argument(help="An ONNX file, or a program that `compile` made.", show_default=False)]


CheckedModel = Annotated[Path | None, typer.Argument(help="An ONNX file, or a program that `compile` made.")]


Supported = Annotated[
    bool, typer.Option("--supported", help="Show the operators that are supported, and what is refused of them.")
]


ConfigOption = Annotated[
    str, typer.Option("--config", metavar="NAME|FILE", help=f"Configuration: {', '.join(PRESETS)}, or a JSON file.")
]


OtherConfig = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="NAME|FILE",
        show_default=False,
        help="Configuration, a preset or a JSON file; by default the one that is made for it.",
    ),
]


CheckedConfig = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="NAME|FILE",
        show_default=f"{DEFAULT_PRESET}, or the board's",
        help=f"Configuration: {', '.join(PRESETS)}, or a JSON file.",
    ),
]


Cores = Annotated[
    int | None,
    typer.Option(
        metavar="1|2|4|8", help="Cores of the accelerator. By default those of the configuration.", show_default=False
    ),
]


Spread = Annotated[
    SpreadBy | None,
    typer.Option(
        help="What each of several cores has a part of: the samples, or every layer of one sample. By default sample, "
        "or what a program was compiled for.",
        show_default=False,
    ),
]


Batch = Annotated[
    int | None,
    typer.Option(
        help="Samples of an inference, of each core if each has its own: those of a fully connected network share "
        "weights that do not stay. By default 1, or what a program was compiled for.",
        min=1,
        show_default=False,
    ),
]


Calibrate = Annotated[
    Path,
    typer.Option(
        metavar="FILE.npz",
        show_default=False,
        help="Typical inputs: a NumPy archive with an array for each input; the first axis counts samples.",
    ),
]


TestSamples = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.npz",
        show_default=False,
        help="Other inputs, to measure the error on; by default every tenth sample is held out for that.",
    ),
]


Inputs = Annotated[
    list[str],
    typer.Option(
        "--input",
        metavar="[NAME=]FILE",
        show_default=False,
        help="A NumPy file for an input; the first axis is the batch.",
    ),
]


Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "--output", "-o", metavar="[NAME=]FILE", show_default=False, help="Where an output goes, as a NumPy file."
    ),
]


Report = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.html",
        show_default=False,
        help="Write a page that shows where cycles and bytes go, layer by layer (needs the extra `report`).",
    ),
]


Backend = Annotated[
    BackendName,
    typer.Option(
        help="What computes: the simulated accelerator, or the golden functions, which give the same bytes much faster "
        "and count no cycles."
    ),
]


Samples = Annotated[
    Path,
    typer.Option(
        "--data",
        metavar="FILE",
        show_default=False,
        help="Inputs: a NumPy archive (.npz) with an array for each, or the array of the only one (.npy); the first "
        "axis counts samples.",
    ),
]


Labels = Annotated[
    Path,
    typer.Option(
        metavar="FILE.npy",
        show_default=False,
        help="The class of each sample: a NumPy file of integers, of which 0 is the first class.",
    ),
]


FloatModel = Annotated[
    Path | None,
    typer.Option(
        "--float", metavar="FILE.onnx", show_default=False, help="The float model, whose accuracy is shown as well."
    ),
]


Limit = Annotated[int | None, typer.Option(help="Only so many samples, the first ones.", min=1, show_default=False)]


Mhz = Annotated[
    float | None,
    typer.Option(
        "--mhz",
        metavar="MHZ",
        help="The clock, for times in milliseconds. By default that at which a preset has been placed and routed.",
        show_default=False,
    ),
]


Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output; on an error, an object with `error`.")
]


Operators = Annotated[
    list[str] | None,
    typer.Option(
        "--operator",
        metavar="NAME[:OPTION=VALUE,...]",
        show_default=False,
        help="An ONNX operator with its attributes, as LeakyRelu:alpha=0.1; several make a chain.",
    ),
]


SourceScheme = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="SCHEME",
        show_default=False,
        help="Of the codes: qM.N or uqM.N (fixed point), or int8, uint8, int16 or uint16 with :scale=S, as "
        "int8:scale=0.05,zero_point=-3; after signed ones also symmetric (the least code is unused).",
    ),
]


QuantisedFile = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="The quantised ONNX file; by default MODEL_int8.onnx.", show_default=False),
]

PerLayer = Annotated[
    bool,
    typer.Option("--per-layer", help="Compare float and int8 layer by layer, on samples that set no scale."),
]

LayerPlot = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        metavar="FILE.html",
        show_default=False,
        help="Write a page that shows which layer loses the accuracy (needs the extra `report`); implies --per-layer.",
    ),
]

Plot = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.html",
        show_default=False,
        help="Write a page that shows curve, codes and error (needs the extra `report`).",
    ),
]


BlockRams = Annotated[
    str | None,
    typer.Option(
        metavar="FAMILY=COUNT",
        show_default=False,
        help="The block RAMs that there are, as ecp5=56 or xilinx=50: a table that takes more is refused.",
    ),
]


def _show_version(wanted: bool) -> None:
    if wanted:
        answer(f"lutterfly {importlib.metadata.version('lutterfly')}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
]


# Options for boards.

BoardName = Annotated[
    str, typer.Option("--board", metavar="NAME", show_default=False, help=f"The board: {', '.join(BOARDS)}.")
]

CheckedBoard = Annotated[
    str | None,
    typer.Option(
        "--board",
        metavar="NAME",
        show_default=False,
        help=f"Say whether the model runs on a board, and on which boards it does: {', '.join(BOARDS)}.",
    ),
]

Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar=FORMS.replace(" or ", "|"),
        show_default=False,
        help="A board at a serial port, as uart:/dev/ttyUSB0, or its twin; or (experimental) an accelerator on this "
        "machine's bus, as uio:/dev/uio0,/dev/udmabuf0; by default the accelerator is simulated.",
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
