"""Whether the first axis of a float model's inputs counts samples: two together give what each gives alone."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from ..frontend import ModelError
from ..model.executed import open_session
from ..model.model import Model
from ..model.model_graph import model_inputs
from ..model.runtime import RUNTIME_ERRORS

#: As far as outputs may differ, of the largest value: float32 adds up in another order in a batch.
_ROUNDING = 1e-3
_REMEDY = (
    "export the model with the samples first and a fixed length, such as [batch, time, features] (PyTorch: "
    "batch_first=True), or with all sizes fixed, such as [20, 1, features], which are one sample then"
)


def check_batch(model: Model, samples: Mapping[str, np.ndarray], name: str) -> None:
    """Run a model on two samples together and on each alone.

    A model whose first axis is fixed has nothing to be asked, and neither has one that cannot run on two samples.

    Parameters
    ----------
    model : Model
        A float model.
    samples : mapping of str to array
        Every input by name, as :func:`~.float_model.check_samples` accepts them.
    name : str
        What messages call the model.

    Raises
    ------
    ModelError
        If an output differs: the first axis is another one, such as time, and samples would be taken apart.
    """
    if len(dynamic_batches(model.proto)) < len(model_inputs(model.proto)):
        return
    try:
        output = _differing_output(model, samples)
    except RUNTIME_ERRORS:
        return
    if output is not None:
        inputs = ", ".join(repr(key) for key in samples)
        raise ModelError(
            f"{name}: the first axis of its inputs ({inputs}) must count samples, and is another one, such as time: "
            f"output {output!r} of two samples together is not that of each alone; {_REMEDY}"
        )


def dynamic_batches(model: onnx.ModelProto) -> dict[str, str]:
    """What the first axis is called of inputs of which it is dynamic."""
    dimensions = {value.name: value.type.tensor_type.shape.dim[0] for value in model_inputs(model)}
    return {name: axis.dim_param or "batch" for name, axis in dimensions.items() if axis.dim_value != 1}


def free_batch(model: onnx.ModelProto, given: Mapping[str, str], samples: Mapping[str, np.ndarray]) -> None:
    """Let the first axis of inputs be dynamic again, if the model gives the same for two samples as for each.

    Parameters
    ----------
    model : ModelProto
        With a batch of 1; it stays as it is where something in it depends on that.
    given : mapping of str to str
        What the axis was called, by input.
    samples : mapping of str to array
    """
    freed = copy.deepcopy(model)
    for value in freed.graph.input:
        if value.name in given:
            value.type.tensor_type.shape.dim[0].dim_param = given[value.name]
    for value in freed.graph.output:
        value.type.tensor_type.ClearField("shape")
    del freed.graph.value_info[:]
    freed = onnx.shape_inference.infer_shapes(freed)
    if not given or not all(value.type.tensor_type.HasField("shape") for value in freed.graph.output):
        return
    try:
        if _differing_output(Model.written(freed), samples) is None:
            model.CopyFrom(freed)
    except RUNTIME_ERRORS:
        return


def _differing_output(model: Model, samples: Mapping[str, np.ndarray]) -> str | None:
    """An output of two samples together that is not that of each alone."""
    session, both = open_session(model), _two(samples)
    outputs = [info.name for info in session.get_outputs()]
    together = session.run(outputs, both)
    alone = [session.run(outputs, {key: array[place : place + 1] for key, array in both.items()}) for place in range(2)]
    for output, found, parts in zip(outputs, together, zip(*alone, strict=True), strict=True):
        if not _is_of_each(found, parts):
            return output
    return None


def _two(samples: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The first sample and one that differs from it, made of its own values where there is none."""
    count = len(next(iter(samples.values())))
    others = (place for place in range(1, count) if any((a[place] != a[0]).any() for a in samples.values()))
    place = next(others, None)
    if place is not None:
        return {name: array[[0, place]] for name, array in samples.items()}
    return {
        name: np.concatenate([array[:1], np.roll(array[:1].reshape(-1), 1).reshape(array[:1].shape)])
        for name, array in samples.items()
    }


def _is_of_each(together: np.ndarray, parts: Sequence[np.ndarray]) -> bool:
    """Whether an output of two samples is those of each, along whichever axis, or the same for both."""
    if all(_is_near(together, part) for part in parts):
        return True
    return any(_is_near(together, np.concatenate(parts, axis)) for axis in range(parts[0].ndim))


def _is_near(found: np.ndarray, expected: np.ndarray) -> bool:
    if found.shape != expected.shape:
        return False
    if not np.issubdtype(found.dtype, np.floating):
        return bool(np.array_equal(found, expected))
    greatest = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
    return bool(np.allclose(found, expected, rtol=0, atol=_ROUNDING * greatest, equal_nan=True))
