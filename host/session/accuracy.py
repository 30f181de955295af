"""Accuracy: the classes that float model, int8 model and accelerator choose for samples, and the bytes that differ."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnxruntime

from ..files.terminal import Progress, silent
from ..model.arrays import TensorInfo, contents
from ..model.executed import open_session
from ..model.runtime import RUNTIME_ERRORS, probe, random_tensors, reason_of
from .session import InferenceSession, single_samples

Outputs = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one of them.

    Attributes
    ----------
    right, samples : int
        Samples whose class it chooses rightly, and all samples.
    seconds : float
        The time that it took.
    """

    right: int
    samples: int
    seconds: float

    @property
    def accuracy(self) -> float:
        """Part of the samples, between 0 and 1."""
        return self.right / self.samples

    @property
    def samples_per_second(self) -> float:
        """The speed."""
        return self.samples / self.seconds


@dataclass(frozen=True)
class Accuracy:
    """The results of a measurement.

    Attributes
    ----------
    float_model : Score or None
        The score of the float model; None where there is none.
    int8_model, accelerator : Score
        The scores in ONNX Runtime, and by the session's back-end.
    differing : int or None
        Samples for which some output of the accelerator differs from the int8 model's in ONNX Runtime; None where they
        cannot be compared.
    reference : str
        The reason why they cannot; else empty.
    """

    float_model: Score | None
    int8_model: Score
    accelerator: Score
    differing: int | None
    reference: str

    @property
    def is_right(self) -> bool:
        """Whether no byte differs."""
        return not self.differing


def class_count(outputs: Sequence[TensorInfo], name: str) -> int:
    """Return the number of classes that a model distinguishes.

    Raises
    ------
    ValueError
        If it has several outputs, or not one value for each of several classes; ``name`` is the model's.
    """
    if len(outputs) > 1:
        raise ValueError(
            f"{name}: must have one output, the values of the classes, not {', '.join(info.name for info in outputs)}; "
            "leave out the others in the model"
        )
    (output,) = outputs
    sizes = [size for size in output.sample_shape if size != 1]
    if len(sizes) != 1:
        raise ValueError(
            f"{name}: output {output.name} must have a value for each of several classes, [batch, classes], "
            f"not {output.shape}; evaluate is for classifiers"
        )
    return sizes[0]


def measure_accuracy(
    session: InferenceSession,
    feeds: Mapping[str, np.ndarray],
    labels: npt.NDArray[np.int64],
    *,
    float_model: onnxruntime.InferenceSession | None = None,
    progress: Progress = silent,
) -> Accuracy:
    """Run the samples in ONNX Runtime and by the session's back-end.

    Parameters
    ----------
    session : InferenceSession
        The session of the int8 model, a classifier, see :func:`class_count`.
    feeds : mapping of str to array
        The model's inputs; the first axis counts samples.
    labels : int64[samples]
        The classes of the samples.
    float_model : onnxruntime.InferenceSession or None
        A classifier of the same inputs and classes.
    progress : callable

    Raises
    ------
    ValueError
        If ONNX Runtime does not run a model on a sample.
    AcceleratorError
        If the accelerator stops.
    """
    samples = single_samples(feeds)

    def in_runtime(model: onnxruntime.InferenceSession, what: str) -> Outputs:
        results = []
        for done, sample in enumerate(samples):
            progress(f"{what} in ONNX Runtime", done, len(samples))
            results.append(_run(model, sample, what))
        return {name: np.concatenate([result[name] for result in results]) for name in results[0]}

    def scored(run: Callable[[], Outputs]) -> tuple[Score, Outputs]:
        began = time.perf_counter()
        outputs = run()
        seconds = time.perf_counter() - began
        (values,) = outputs.values()
        chosen = values.reshape(len(labels), -1).argmax(axis=1)
        return Score(int(np.count_nonzero(chosen == labels)), len(labels), seconds), outputs

    of_float = scored(lambda: in_runtime(float_model, "float model"))[0] if float_model else None
    reference = open_session(session.loaded.model)
    of_int8, expected = scored(lambda: in_runtime(reference, "int8 model"))
    session.backend.prepare()
    of_accelerator, found = scored(lambda: session.run_samples(feeds))
    reason = _incomparable(session)
    differing = None if reason else _differing(expected, found)
    return Accuracy(of_float, of_int8, of_accelerator, differing, reason)


def _run(model: onnxruntime.InferenceSession, sample: Mapping[str, np.ndarray], what: str) -> dict[str, np.ndarray]:
    names = [value.name for value in model.get_outputs()]
    try:
        return dict(zip(names, model.run(names, dict(sample)), strict=True))
    except RUNTIME_ERRORS as error:
        raise ValueError(
            f"the {what} must be defined for every sample, and is not for one: {reason_of(error)}"
        ) from error


def _incomparable(session: InferenceSession) -> str:
    """Return the reason why ONNX Runtime's bytes are not a reference; empty if they are."""
    chance = random_tensors(session.loaded.model.proto) & {info.name for info in session.get_outputs()}
    return probe() or (f"random numbers decide {', '.join(sorted(chance))}" if chance else "")


def _differing(expected: Outputs, found: Outputs) -> int:
    """Count the samples in which a byte of an output differs."""
    return sum(
        any(contents(array[index]) != contents(found[name][index]) for name, array in expected.items())
        for index in range(len(next(iter(expected.values()))))
    )
