"""A chain of ONNX operators as a function of numbers, evaluated by ONNX Runtime, once it has shown to be one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx

from ...golden.transfer.schemes import Float32
from ..model.model import model_inputs
from ..model.runtime import RUNTIME_ERRORS, plain_session

#: Lengths of pieces that the numbers are cut into: the long ones are all compared, the short ones are numbers alone.
_PIECES = (255, 1)
#: Of how many pieces of a length results are compared.
_MOST_PIECES = 512
#: ONNX Runtime's kernels may round a result differently at the end of a tensor; what depends on other places differs by
#: more. A table holds the results of one tensor with all codes.
_ROUNDING = {"rtol": 1e-5, "atol": 1e-6, "equal_nan": True}


class PointwiseError(ValueError):
    """A chain whose result at a place depends on more than the number there."""


class Pointwise:
    """A function of float32 numbers, place by place.

    Parameters
    ----------
    model : ModelProto
        One float input of any shape with a known number of axes, one output.
    name : str
        For messages.
    """

    def __init__(self, model: onnx.ModelProto, name: str):
        self.model = model
        self.name = name

    def __call__(self, values: Float32) -> Float32:
        """Evaluate the chain.

        Parameters
        ----------
        values : float32[n]

        Returns
        -------
        float32[n]

        Raises
        ------
        PointwiseError
            If a result depends on where in a tensor its number stands, on the numbers beside it, or on the tensor's
            shape; names the first operator of which that is so.
        ValueError
            If ONNX Runtime does not run the chain, or the result is not float.
        """
        try:
            return self._checked(self.model, values)
        except PointwiseError:
            for node, part in self._beginnings():
                try:
                    self._checked(part, values)
                except PointwiseError as error:
                    raise PointwiseError(f"{self.name}: {node.op_type} must be pointwise: {error}") from None
            raise

    def _checked(self, model: onnx.ModelProto, values: Float32) -> np.ndarray:
        try:
            session = plain_session(model, threads=1)
        except RUNTIME_ERRORS as error:
            raise self._refused(error) from None
        (given,) = session.get_inputs()
        # An unknown number of axes counts as one.
        rank = max(len(given.shape), 1)

        def run(array: Float32, axis: int) -> np.ndarray:
            shape = [1] * rank
            shape[axis] = array.size
            try:
                result = np.asarray(session.run(None, {given.name: array.reshape(shape)})[0])
            except RUNTIME_ERRORS as error:
                raise self._refused(error) from None
            if result.shape != tuple(shape):
                raise PointwiseError(
                    f"its result has the shape {list(result.shape)} for an input of the shape {shape}, "
                    "and must have the same"
                )
            return result.reshape(-1)

        whole = run(values, 0)
        for places in _arrangements(values.size):
            for axis in range(rank):
                _compare(values[places], whole[places], run(values[places], axis))
        return whole

    def _refused(self, error: Exception) -> ValueError:
        reason = str(error).splitlines()[0]
        return ValueError(
            f"{self.name}: must be a chain of pointwise operators that ONNX Runtime runs, on tensors of any shape, "
            f"and it does not: {reason}"
        )

    def _beginnings(self) -> Iterator[tuple[onnx.NodeProto, onnx.ModelProto]]:
        """Every node that depends on the input, in order, and the model that ends with it."""
        dependent = {value.name for value in model_inputs(self.model)}
        for node in self.model.graph.node:
            if dependent.isdisjoint(node.input):
                continue
            dependent.update(node.output)
            part = onnx.ModelProto()
            part.CopyFrom(self.model)
            part.graph.output[0].CopyFrom(onnx.ValueInfoProto(name=node.output[0]))
            yield node, part


def _arrangements(size: int) -> Iterator[np.ndarray]:
    """Places of a tensor in another order and in other company."""
    places = np.arange(size)
    yield places[::-1]
    for length in _PIECES:
        starts = places[::length]
        for start in starts[:: -(-starts.size // _MOST_PIECES)]:
            yield places[start : start + length]


def _compare(values: Float32, results: np.ndarray, others: np.ndarray) -> None:
    wrong = np.flatnonzero(~np.isclose(results, others, **_ROUNDING))
    if wrong.size:
        at = wrong[0]
        raise PointwiseError(
            f"for the input {values[at]:g} it gives {results[at]:g} or {others[at]:g}, "
            "depending on its place, or on the numbers beside it"
        )
