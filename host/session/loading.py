"""Loading: a program from whatever a user hands in, and what the compiler decided for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...golden.config import Config
from ...golden.presets import DEFAULT_PRESET
from ...golden.program import MAGIC, Program
from ..driver.driver import check_config
from ..files.configuration import find_config
from ..model.model_file import read_model_file

if TYPE_CHECKING:
    from ..compiler import Outcome
    from ..graph import Graph

#: What of a program tells that it is this compiler's.
_DESCRIBED = ("body", "inputs", "outputs", "layers", "written", "spilled", "predicted_cycles")


def load_program(
    path_or_bytes: str | Path | bytes | Program,
    config: str | Path | Config = DEFAULT_PRESET,
    *,
    name: str = "model",
    batch: int | None = None,
) -> Program:
    """The program in a program file, or the program that an ONNX file compiles to; messages call bytes ``name``.

    ``batch`` are the samples of an inference: by default those that a program was compiled for, and 1 for a model.

    Raises
    ------
    ValueError
        If the file is neither, or does not fit the configuration; the message names the place and the remedy.
    """
    found = find_config(config)
    if isinstance(path_or_bytes, Program):
        return _checked(path_or_bytes, found, name, batch)
    if isinstance(path_or_bytes, bytes):
        data = path_or_bytes
    else:
        name, data = str(path_or_bytes), read_model_file(path_or_bytes)
    if data.startswith(MAGIC):
        try:
            program = Program.from_bytes(data)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        _checked(program, found, name, batch)
        # ONNX Runtime, with which they are run, takes a while to import.
        from .program_parts import check_parts  # noqa: PLC0415

        check_parts(program, name)
        return program
    # A program file needs no compiler, which takes a while to import.
    from ..compiler import compile_model  # noqa: PLC0415

    return compile_model(data, found, name, batch=1 if batch is None else batch)


def _checked(program: Program, config: Config, name: str, batch: int | None) -> Program:
    """A program that is for this configuration and batch."""
    try:
        check_config(program, config)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    if batch not in (None, program.batch):
        raise ValueError(
            f"{name}: batch must be {program.batch}, which the program is compiled for, not {batch}; "
            "leave it out, or compile the model again"
        )
    return program


def load_outcome(
    path: str | Path, config: str | Path | Config = DEFAULT_PRESET, *, batch: int | None = None
) -> tuple[Program, Outcome, Graph]:
    """The program as :func:`load_program` gives it, what the compiler decided, and the network that was compiled.

    Raises
    ------
    ValueError
        As :func:`load_program`; also if this release's compiler would not make the program of a program file.
    """
    from ..compiler import Outcome, batched, encode, plan_graph  # noqa: PLC0415
    from ..frontend import import_model  # noqa: PLC0415

    found, name, data = find_config(config), str(path), read_model_file(path)
    program = load_program(data, found, name=name, batch=batch) if data.startswith(MAGIC) else None
    samples = program.batch if program else 1 if batch is None else batch
    graph = batched(import_model(program.model if program else data, name), samples)
    plan = plan_graph(graph, found)
    encoded = encode(plan)
    if program is not None and any(getattr(program, name) != getattr(encoded, name) for name in _DESCRIBED):
        raise ValueError(f"{name}: the program must be one that this release's compiler makes; compile it again")
    return program or encoded, Outcome(plan), graph
