"""Loading: a program from whatever a user hands in, and what the compiler decided for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...golden.config import Config
from ...golden.presets import DEFAULT_PRESET
from ...golden.program.program import MAGIC, Program
from ..driver.driver import check_config
from ..files.configuration import find_config
from ..files.reading import read_file
from ..model.model import Model
from ..model.model_file import with_external_data
from ..program.outcome import Outcome
from .loaded import Loaded

if TYPE_CHECKING:
    from ..graph import Graph

#: What a user hands in: the path of a file or its contents, or what was made of them.
Given = str | Path | bytes | Model | Program | Loaded


def load(
    given: Given, config: str | Path | Config = DEFAULT_PRESET, *, name: str = "model", batch: int | None = None
) -> Loaded:
    """The program in a program file, or the program that an ONNX file compiles to, with the models in it.

    Parameters
    ----------
    given : str, Path, bytes, Model, Program or Loaded
    config : str, Path or Config
    name : str
        What messages call what is given without a path.
    batch : int or None
        Samples of an inference: by default those that a program was compiled for, and 1 for a model.

    Raises
    ------
    ValueError
        If the file is neither, or does not fit the configuration; the message names the place and the remedy.
    """
    return load_with_graph(given, config, name=name, batch=batch)[0]


def load_with_graph(
    given: Given, config: str | Path | Config = DEFAULT_PRESET, *, name: str = "model", batch: int | None = None
) -> tuple[Loaded, Graph | None]:
    """What :func:`load` gives, and the graph that was compiled; None where that was done before."""
    found = find_config(config)
    if isinstance(given, Loaded):
        return _checked(given, found, batch), None
    if isinstance(given, Program):
        return _checked(Loaded.of(name, given), found, batch), None
    if isinstance(given, Model):
        return _compiled(given, found, name, batch)
    path = None if isinstance(given, bytes) else Path(given)
    name, data = (name, given) if path is None else (str(given), read_file(path))
    if data.startswith(MAGIC):
        return _read(data, found, name, batch)
    model = Model(data)
    return _compiled(model if path is None else with_external_data(model, path), found, name, batch)


def load_program(
    given: Given, config: str | Path | Config = DEFAULT_PRESET, *, name: str = "model", batch: int | None = None
) -> Program:
    """The program alone, see :func:`load`."""
    return load(given, config, name=name, batch=batch).program


def load_outcome(
    path: str | Path, config: str | Path | Config = DEFAULT_PRESET, *, batch: int | None = None
) -> tuple[Loaded, Outcome]:
    """What :func:`load` gives, and what the compiler of the program has decided, which a program file says.

    Raises
    ------
    ValueError
        As :func:`load`; also if a program file says nothing of it.
    """
    found = find_config(config)
    loaded = load(path, found, batch=batch)
    try:
        return loaded, Outcome(loaded.program, found)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _read(data: bytes, config: Config, name: str, batch: int | None) -> tuple[Loaded, None]:
    try:
        program = Program.from_bytes(data)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    loaded = _checked(Loaded.of(name, program), config, batch)
    # ONNX Runtime, with which they are run, takes a while to import.
    from .program_parts import check_parts  # noqa: PLC0415

    check_parts(loaded)
    return loaded, None


def _compiled(model: Model, config: Config, name: str, batch: int | None) -> tuple[Loaded, Graph]:
    # A program file needs neither, which take a while to import.
    from ..compiler import batched, compile_graph  # noqa: PLC0415
    from ..frontend import import_model  # noqa: PLC0415

    graph = batched(import_model(model, name), 1 if batch is None else batch)
    return Loaded(name, compile_graph(graph, config), graph.model, graph.head, graph.tail), graph


def _checked(loaded: Loaded, config: Config, batch: int | None) -> Loaded:
    """A program that is for this configuration and batch."""
    program = loaded.program
    try:
        check_config(program, config)
    except ValueError as error:
        raise ValueError(f"{loaded.name}: {error}") from error
    if batch not in (None, program.batch):
        raise ValueError(
            f"{loaded.name}: batch must be {program.batch}, which the program is compiled for, not {batch}; "
            "leave it out, or compile the model again"
        )
    return loaded
