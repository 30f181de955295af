"""Loading: a program from whatever a user hands in, and what the compiler decided for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
from google.protobuf.message import DecodeError

from ...golden.config import Config
from ...golden.elements import BINARY_BITS, CODE_BITS
from ...golden.presets import DEFAULT_PRESET
from ...golden.program.program import MAGIC, Port, Program, SpilledTensor, WrittenTensor
from ..driver.driver import check_config
from ..driver.ports import port_dtype
from ..files.configuration import find_config
from ..files.files import read_file
from ..graph import Graph
from ..model.arrays import TensorInfo, describe_model
from ..model.model import Model, with_external_data
from ..model.runtime import RUNTIME_ERRORS, reason_of
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
        # REMOVED

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
        # REMOVED

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


# Whether the ONNX models in a program file and the accelerator's ports hand one another what they need.


def check_parts(loaded: Loaded) -> None:
    """Run head and tail once, on zeros for one sample.

    Raises
    ------
    ValueError
        If one of the models is none, or what it or a port needs is missing, or of another type or shape.
    """
    try:
        _check(loaded)
    except (DecodeError, *RUNTIME_ERRORS) as error:
        raise _damaged(
            f"{loaded.name}: program must hold models that ONNX Runtime runs, and does not: {reason_of(error)}"
        ) from error
    except ValueError as error:
        raise _damaged(f"{loaded.name}: program: {error}") from error


def _check(loaded: Loaded) -> None:
    program, (inputs, outputs) = loaded.program, loaded.ends
    values = {info.name: np.zeros((1, *info.sample_shape), info.dtype) for info in inputs}
    values |= _run("head", loaded.head_session, values)
    for port in program.inputs:
        _find("accelerator", port.name, values)
        _check_form(port, values[port.name], program.batch)
    for port in program.outputs:
        values[port.name] = np.zeros(_sample_shape(port, program.batch), port_dtype(port))
    values |= _run("tail", loaded.tail_session, values)
    for info in outputs:
        _find("user", info.name, values)


def _run(
    part: str, session: onnxruntime.InferenceSession | None, values: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    if session is None:
        return {}
    needed, names = ([value.name for value in end] for end in (session.get_inputs(), session.get_outputs()))
    for name in needed:
        _find(part, name, values)
    return dict(zip(names, session.run(names, {name: values[name] for name in needed}), strict=True))


def _find(reader: str, name: str, values: Iterable[str]) -> None:
    if name not in values:
        raise ValueError(f"the {reader} needs {name}, and there is only {', '.join(values)}")


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


# Whether a program's tensors are those of its model.

#: What elements are called by their bits.
_KINDS = {CODE_BITS: "int8", BINARY_BITS: "binary"}


def check_tensors(program: Program, graph: Graph, name: str) -> None:
    """Raise ValueError if what a program says of its tensors is not what its model has; ``name`` is the file's."""
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
    """Names and bits of the tensors that these are parts of."""
    return list(dict.fromkeys((part.name, part.bits) for part in parts))


def _extent(parts: Sequence[WrittenTensor | SpilledTensor]) -> tuple[int, int, int]:
    """The shape of a tensor that has such parts."""
    height = max(part.row + part.shape[0] for part in parts)
    channels = max(part.channel + part.shape[2] for part in parts)
    return height, max(part.shape[1] for part in parts), channels
