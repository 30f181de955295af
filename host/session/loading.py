"""Loading: a program from whatever a user hands in, and what the compiler decided for it."""

from __future__ import annotations

from pathlib import Path

from ...golden.config import Config
from ...golden.presets import DEFAULT_PRESET
from ...golden.program.program import MAGIC, Program
from ..driver.driver import check_config
from ..files.configuration import find_config
from ..model.model_file import read_model_file
from ..program.outcome import Outcome


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
) -> tuple[Program, Outcome]:
    """The program as :func:`load_program` gives it, and what its compiler has decided, which a program file says.

    Raises
    ------
    ValueError
        As :func:`load_program`; also if a program file says nothing of it.
    """
    found = find_config(config)
    program = load_program(path, found, batch=batch)
    try:
        return program, Outcome(program, found)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
