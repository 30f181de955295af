"""Loading a program from any form in which a user gives it, and the checks of a program file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...golden.config import Config
from ...golden.elements import BINARY_BITS, CODE_BITS
from ...golden.presets import DEFAULT_PRESET
from ...golden.program.outline import Outline
from ...golden.program.program import MAGIC, Port, Program, SpilledTensor, WrittenTensor
from ...golden.units import Queue
from ..driver.driver import check_config
from ..driver.ports import port_dtype
from ..files.configuration import find_config
from ..files.files import read_file
from ..model.arrays import TensorInfo, describe_model
from ..model.model import Model, with_external_data
from ..program import BodyCommand, SpreadBy, read_body, spread_of

if TYPE_CHECKING:
    import onnxruntime

    from ..graph import Graph

# A program and its ONNX models, each of which is parsed and opened once.


@dataclass(frozen=True, eq=False)
class LoadedProgram:
    """A program and its models, parsed once.

    Attributes
    ----------
    name : str
        The name in messages.
    program : Program
    model, head, tail : Model
        The models of the program; head and tail are empty where there is none.
    compiled : Graph or None
        The graph that was compiled; None for a program that was loaded.
    """

    name: str
    program: Program
    model: Model
    head: Model
    tail: Model
    compiled: Graph | None = field(default=None, repr=False)

    @classmethod
    def of(cls, name: str, program: Program) -> LoadedProgram:
        """Create it for a program whose models are not parsed yet."""
        return cls(name, program, Model(program.model), Model(program.head), Model(program.tail))

    @property
    def parts(self) -> tuple[Model, Model]:
        """The models that run on the host."""
        return self.head, self.tail

    @cached_property
    def bodies(self) -> tuple[dict[Queue, tuple[BodyCommand, ...]], ...]:
        """The commands of each core's body, with their predicted cycles.

        Raises
        ------
        ValueError
            If the program has no outline, or a command that does not exist.
        """
        if self.program.outline == Outline():
            raise ValueError(
                f"{self.name}: program must have an outline of what its compiler has decided, and has none; "
                "compile the model with `lutterfly compile`"
            )
        try:
            return tuple(read_body(core) for core in self.program.cores)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from error

    @cached_property
    def graph(self) -> Graph:
        """The graph that the accelerator computes, for the golden functions.

        Raises
        ------
        ValueError
            If the program does not belong to its model.
        """
        graph = self.compiled or self._imported()
        check_tensors(self.program, graph, self.name)
        return graph

    def _imported(self) -> Graph:
        # The imports take a while, and a program that the accelerator runs does not need them.
        from ..compiler import batched  # noqa: PLC0415
        from ..frontend import import_model  # noqa: PLC0415

        return batched(import_model(self.model, self.name), self.program.batch // self.program.shares)

    @cached_property
    def ends(self) -> tuple[list[TensorInfo], list[TensorInfo]]:
        """The inputs and outputs of the model."""
        return describe_model(self.model)

    @cached_property
    def head_part(self) -> HostPart:
        """The head in ONNX Runtime."""
        return HostPart("head", self.head)

    @cached_property
    def tail_part(self) -> HostPart:
        """The tail in ONNX Runtime."""
        return HostPart("tail", self.tail)


class HostPart:
    """The nodes of a network before or after the accelerator, in ONNX Runtime.

    Parameters
    ----------
    name : str
        Its name in messages.
    model : Model
        The nodes; empty if there are none.
    """

    def __init__(self, name: str, model: Model):
        self.name = name
        self._session: onnxruntime.InferenceSession | None = None
        self._inputs, self._outputs = list[str](), list[str]()
        if model:
            # A model without head and tail needs fewer imports.
            from ..model.executed import open_host_part  # noqa: PLC0415

            self._session = open_host_part(model)
            # ONNX Runtime takes as long to list the names as some networks take to run.
            self._inputs = [value.name for value in self._session.get_inputs()]
            self._outputs = [value.name for value in self._session.get_outputs()]

    def __bool__(self) -> bool:
        """Whether there are any nodes."""
        return self._session is not None

    def run(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the nodes on one sample: their outputs by name.

        Raises
        ------
        ValueError
            If an input is missing.
        RUNTIME_ERRORS
            If ONNX Runtime cannot compute them.
        """
        if self._session is None:
            return {}
        for name in self._inputs:
            require(self.name, name, values)
        feeds = {name: values[name] for name in self._inputs}
        return dict(zip(self._outputs, self._session.run(self._outputs, feeds), strict=True))


def require(reader: str, name: str, values: Iterable[str]) -> None:
    """Raise ValueError if a tensor that ``reader`` needs is missing."""
    if name not in values:
        raise ValueError(f"the {reader} needs {name}, and there is only {', '.join(values)}")


#: A model or program of a user: the path of a file, its contents, or an object made of them.
Given = str | Path | bytes | Model | Program | LoadedProgram


def load(
    given: Given,
    config: str | Path | Config = DEFAULT_PRESET,
    *,
    name: str = "model",
    batch: int | None = None,
    spread_by: SpreadBy | None = None,
) -> LoadedProgram:
    """Load a program file, or compile an ONNX file, with the models in it.

    Parameters
    ----------
    given : str, Path, bytes, Model, Program or LoadedProgram
    config : str, Path or Config
    name : str
        The name in messages of a model or program without a path.
    batch : int or None
        Samples of an inference, of each core if each has its own: by default those that a program was compiled for,
        and 1 for a model.
    spread_by : SpreadBy or None
        The dimension that is divided among cores, if there are several: by default that of the program, and samples for
        a model.

    Raises
    ------
    ValueError
        If the file is neither, or does not fit the configuration; the message names the place and the remedy.
    """
    wanted = _Wanted(find_config(config), batch, spread_by)
    if isinstance(given, LoadedProgram):
        return wanted.checked(given)
    if isinstance(given, Program):
        return wanted.checked(LoadedProgram.of(name, given))
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
    """Load only the program, see :func:`load`."""
    return load(given, config, name=name, batch=batch).program


@dataclass(frozen=True)
class _Wanted:
    """Requirements of a program, as :func:`load` takes them."""

    config: Config
    batch: int | None
    spread_by: SpreadBy | None

    def read(self, data: bytes, name: str) -> LoadedProgram:
        """Read a program file."""
        try:
            program = Program.from_bytes(data)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        loaded = self.checked(LoadedProgram.of(name, program))
        check_parts(loaded)
        return loaded

    def compiled(self, model: Model, name: str) -> LoadedProgram:
        """Compile a model."""
        # A program file needs neither of these imports, which take a while.
        from ..compiler import batched, compile_graph  # noqa: PLC0415
        from ..frontend import import_model  # noqa: PLC0415

        graph = batched(import_model(model, name), 1 if self.batch is None else self.batch)
        program = compile_graph(graph, self.config, spread_by=self.spread_by or SpreadBy.SAMPLE)
        return LoadedProgram(name, program, graph.model, graph.head, graph.tail, compiled=graph)

    def checked(self, loaded: LoadedProgram) -> LoadedProgram:
        """Check that a program meets the requirements."""
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


# Checks of a program file: its ONNX models and the accelerator's ports give one another the tensors that they need.


def check_parts(loaded: LoadedProgram) -> None:
    """Run head and tail once, on zeros for one sample.

    Raises
    ------
    ValueError
        If one of the models is damaged, or if a tensor that it or a port needs is missing, or of another type or shape.
    """
    # ONNX Runtime, which runs the models, takes a while to import.
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    from ..model.runtime import RUNTIME_ERRORS, reason_of  # noqa: PLC0415

    try:
        _check(loaded)
    except (DecodeError, *RUNTIME_ERRORS) as error:
        raise _damaged(
            f"{loaded.name}: program must hold models that ONNX Runtime runs, and does not: {reason_of(error)}"
        ) from error
    except ValueError as error:
        raise _damaged(f"{loaded.name}: program: {error}") from error


def _check(loaded: LoadedProgram) -> None:
    program, (inputs, outputs) = loaded.program, loaded.ends
    values = {info.name: np.zeros((1, *info.sample_shape), info.dtype) for info in inputs}
    values |= loaded.head_part.run(values)
    for port in program.inputs:
        require("accelerator", port.name, values)
        _check_form(port, values[port.name], program.batch)
    for port in program.outputs:
        values[port.name] = np.zeros(_sample_shape(port, program.batch), port_dtype(port))
    values |= loaded.tail_part.run(values)
    for info in outputs:
        require("user", info.name, values)


def _check_form(port: Port, array: np.ndarray, batch: int) -> None:
    wanted = (port_dtype(port), _sample_shape(port, batch))
    if (array.dtype, array.shape) != wanted:
        raise ValueError(
            f"{port.name} must be {wanted[0]}{list(wanted[1])} for a sample, not {array.dtype}{list(array.shape)}"
        )


def _sample_shape(port: Port, batch: int) -> tuple[int, ...]:
    return (port.onnx_shape[0] // batch, *port.onnx_shape[1:])


def _damaged(message: str) -> ValueError:
    return ValueError(f"{message}; the file is damaged: compile again")


# Checks of a program's tensors: they are those of its model.

#: Names of elements, by their bits.
_KINDS = {CODE_BITS: "int8", BINARY_BITS: "binary"}


def check_tensors(program: Program, graph: Graph, name: str) -> None:
    """Raise ValueError if a program's tensors are not those of its model; ``name`` is the file's."""
    ports = [*zip(program.inputs, graph.inputs, strict=False), *zip(program.outputs, graph.outputs, strict=False)]
    places = [(known, port.shape, port.bits) for port, known in ports]
    parts = [tensor for core in program.cores for tensor in (*core.written, *core.spilled)]
    places += [(part, _extent([other for other in parts if other.name == part]), bits) for part, bits in _kinds(parts)]
    for tensor, shape, bits in places:
        known = graph.tensors.get(tensor)
        if known is None:
            raise ValueError(f"{name}: {tensor} must be in the model, and is not; the file is damaged: compile again")
        if (known.shape, known.bits) != (shape, bits):
            wanted, found = (
                f"{_KINDS[width]}{list(size)}" for size, width in ((known.shape, known.bits), (shape, bits))
            )
            raise ValueError(f"{name}: {tensor} must be {wanted}, not {found}; the file is damaged: compile again")


def _kinds(parts: Sequence[WrittenTensor | SpilledTensor]) -> list[tuple[str, int]]:
    """Return name and bits of each tensor of which there are parts."""
    return list(dict.fromkeys((part.name, part.bits) for part in parts))


def _extent(parts: Sequence[WrittenTensor | SpilledTensor]) -> tuple[int, int, int]:
    """Return the shape of a tensor that has such parts."""
    height = max(part.row + part.shape[0] for part in parts)
    channels = max(part.channel + part.shape[2] for part in parts)
    return height, max(part.shape[1] for part in parts), channels
