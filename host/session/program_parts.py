"""Whether the ONNX models in a program file and the accelerator's ports hand one another what they need."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnxruntime
from google.protobuf.message import DecodeError

from ...golden.program.program import Port
from ..driver.ports import port_dtype
from ..model.runtime import RUNTIME_ERRORS, reason_of
from .loaded import Loaded


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
