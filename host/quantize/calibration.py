"""The samples for quantisation: those that set the scales, those that measure the error, and warnings about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..model.arrays import sample_count

#: One of this many samples is held out; if there are fewer, all of them set the scales.
_SHARE = 10

Samples = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class SampleSplit:
    """Samples by their use.

    Attributes
    ----------
    calibrating : mapping of str to array
        The samples that set the scales.
    judging : mapping of str to array
        The samples on which the error is measured.
    judges : str
        Name of the latter, for messages.
    warnings : list of str
        Defects of the samples, or of the error's measurement.
    """

    calibrating: Samples
    judging: Samples
    judges: str
    warnings: list[str]


def split(samples: Samples, others: Samples | None, origin: str) -> SampleSplit:
    """Choose samples that set the scales, and, wherever possible, other samples on which the error is measured.

    Parameters
    ----------
    samples : mapping of str to array
        Every input by name; the first axis counts samples, as many for each input.
    others : mapping of str to array or None
        Samples for the error; None holds out every tenth of ``samples``.
    origin : str
        Name of ``samples`` in messages.

    Raises
    ------
    ValueError
        If no input has more than one value, so that no scale follows.
    """
    warnings = _complaints(samples, origin)
    if others is not None:
        return SampleSplit(samples, others, "the samples to test with", warnings)
    count = sample_count(samples)
    is_held_out = np.arange(count) % _SHARE == _SHARE - 1
    if is_held_out.any():
        parts = ({name: array[where] for name, array in samples.items()} for where in (~is_held_out, is_held_out))
        return SampleSplit(*parts, "the samples that were held out", warnings)
    warnings.append(
        "the error is measured on the samples that set the scales, and says little of others; give "
        f"{_SHARE} or more, of which every tenth is held out, or others with --test"
    )
    return SampleSplit(samples, samples, "the samples that it was calibrated with", warnings)


def _complaints(samples: Samples, origin: str) -> list[str]:
    constant = [name for name, array in samples.items() if array.min() == array.max()]
    if len(constant) == len(samples):
        shown = ", ".join(f"{name} is {samples[name].flat[0]}" for name in constant)
        raise ValueError(f"{origin}: inputs must have different values, and {shown} everywhere; give typical inputs")
    found = [f"{origin}: {name} is {samples[name].flat[0]} everywhere, which sets no useful scale" for name in constant]
    count = sample_count(samples)
    if count == 1:
        found.append(f"{origin} has one sample; some hundred typical ones set scales that hold for others")
    elif all((array == array[:1]).all() for array in samples.values()):
        found.append(f"{origin}: all {count} samples are equal; typical inputs differ")
    return found
