"""Loading: a program from whatever a user hands in, and what the compiler decided for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ...golden.config import Config
from ...golden.presets import DEFAULT_PRESET
from ...golden.program.program import MAGIC, Program
from ..driver.driver import check_config
from ..files.configuration import find_config
from ..files.files import read_file
from ..model.arrays import TensorInfo, describe_model
from ..model.model import Model, with_external_data
from ..program import Outcome, SpreadBy
from ..program.spread_by import spread_of

if TYPE_CHECKING:
    import onnxruntime

    from ..graph import Graph

# A program with the ONNX models in it, each of which is parsed and opened once.


@dataclass(frozen=True, eq=False)
class Loaded:
    """A program, as it is handed on.

    Attributes
    ----------
    name : str
        What messages call it.
    program : Program
    model, head, tail : Model
        Those of the program; head and tail are empty where there is none.
    compiled : Graph or None
        What was compiled; None where that was done before.
    """

    name: str
    program: Program
    model: Model
    head: Model
    tail: Model
    compiled: Graph | None = field(default=None, repr=False)

    @classmethod
    def of(cls, name: str, program: Program) -> Loaded:
        """A program of which nothing is parsed yet."""
        return cls(name, program, Model(program.model), Model(program.head), Model(program.tail))

    @property
    def parts(self) -> tuple[Model, Model]:
        """What runs on the host."""
        return self.head, self.tail

    @cached_property
    def graph(self) -> Graph:
        """What the accelerator computes, for the golden functions.

        Raises
        ------
        ValueError
            If the program is not one of its model.
        """
        from .program_checks import check_tensors  # noqa: PLC0415

        graph = self.compiled or self._imported()
        check_tensors(self.program, graph, self.name)
        return graph

    def _imported(self) -> Graph:
        # They take a while to import, which a program that the accelerator runs needs not.
        from ..compiler import batched  # noqa: PLC0415
        from ..frontend import import_model  # noqa: PLC0415

        return batched(import_model(self.model, self.name), self.program.batch // self.program.shares)

    @cached_property
    def ends(self) -> tuple[list[TensorInfo], list[TensorInfo]]:
        """Inputs and outputs of the model."""
        return describe_model(self.model)

    @cached_property
    def head_session(self) -> onnxruntime.InferenceSession | None:
        """The head in ONNX Runtime, or None where there is none."""
        return _open(self.head)

    @cached_property
    def tail_session(self) -> onnxruntime.InferenceSession | None:
        """The tail in ONNX Runtime, or None where there is none."""
        return _open(self.tail)


def _open(part: Model) -> onnxruntime.InferenceSession | None:
    if not part:
        return None
    # A model without head and tail needs less of it.
    from ..model.executed import open_host_part  # noqa: PLC0415

    return open_host_part(part)


#: What a user hands in: the path of a file or its contents, or what was made of them.
Given = str | Path | bytes | Model | Program | Loaded


def load(
    given: Given,
    config: str | Path | Config = DEFAULT_PRESET,
    *,
    name: str = "model",
    batch: int | None = None,
    spread_by: SpreadBy | None = None,
) -> Loaded:
    """The program in a program file, or the program that an ONNX file compiles to, with the models in it.

    Parameters
    ----------
    given : str, Path, bytes, Model, Program or Loaded
    config : str, Path or Config
    name : str
        What messages call what is given without a path.
    batch : int or None
        Samples of an inference, of each core if each has its own: by default those that a program was compiled for,
        and 1 for a model.
    spread_by : SpreadBy or None
        What cores have a part of each, if there are several: by default what a program was compiled for, and samples
        for a model.

    Raises
    ------
    ValueError
        If the file is neither, or does not fit the configuration; the message names the place and the remedy.
    """
    wanted = _Wanted(find_config(config), batch, spread_by)
    if isinstance(given, Loaded):
        return wanted.checked(given)
    if isinstance(given, Program):
        return wanted.checked(Loaded.of(name, given))
    if isinstance(given, Model):
        return wanted.compiled(given, name)
    path = None if isinstance(given, bytes) else Path(given)
    name, data = (name, given) if path is None else (str(given), read_file(path))
    if data.startswith(MAGIC):
        return wanted.read(data, name)
    model = Model(data)
    return wanted.compiled(model if path is None else with_external_data(model, path), name)


def load_program(
    given: Given, config: str | Path | Config = DEFAULT_PRESET, *, name: str = "model", batch: int | None = None
) -> Program:
    """The program alone, see :func:`load`."""
    return load(given, config, name=name, batch=batch).program


def load_outcome(
    path: str | Path,
    config: str | Path | Config = DEFAULT_PRESET,
    *,
    batch: int | None = None,
    spread_by: SpreadBy | None = None,
) -> tuple[Loaded, Outcome]:
    """What :func:`load` gives, and what the compiler of the program has decided, which a program file says.

    Raises
    ------
    ValueError
        As :func:`load`; also if a program file says nothing of it.
    """
    found = find_config(config)
    loaded = load(path, found, batch=batch, spread_by=spread_by)
    try:
        return loaded, Outcome(loaded.program, found)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


@dataclass(frozen=True)
class _Wanted:
    """What a program is to be, as :func:`load` takes it."""

    config: Config
    batch: int | None
    spread_by: SpreadBy | None

    def read(self, data: bytes, name: str) -> Loaded:
        """A program file's."""
        try:
            program = Program.from_bytes(data)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        loaded = self.checked(Loaded.of(name, program))
        # ONNX Runtime, with which they are run, takes a while to import.
        from .program_checks import check_parts  # noqa: PLC0415

        check_parts(loaded)
        return loaded

    def compiled(self, model: Model, name: str) -> Loaded:
        """A model's."""
        # A program file needs neither, which take a while to import.
        from ..compiler import batched, compile_graph  # noqa: PLC0415
        from ..frontend import import_model  # noqa: PLC0415

        graph = batched(import_model(model, name), 1 if self.batch is None else self.batch)
        program = compile_graph(graph, self.config, spread_by=self.spread_by or SpreadBy.SAMPLE)
        return Loaded(name, program, graph.model, graph.head, graph.tail, compiled=graph)

    def checked(self, loaded: Loaded) -> Loaded:
        """A program that is what is wanted."""
        program = loaded.program
        try:
            check_config(program, self.config)
        except ValueError as error:
            raise ValueError(f"{loaded.name}: {error}") from error
        batch = program.batch // program.shares
        if self.batch not in (None, batch):
            raise ValueError(
                f"{loaded.name}: batch must be {batch}, which the program is compiled for, not {self.batch}; "
                "leave it out, or compile the model again"
            )
        if len(program.cores) > 1 and self.spread_by not in (None, spread_of(program)):
            raise ValueError(
                f"{loaded.name}: spread must be by {spread_of(program)}, which the program is compiled for, not by "
                f"{self.spread_by}; leave it out, or compile the model again"
            )
        return loaded
