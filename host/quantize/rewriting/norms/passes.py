"""From a tensor to its normalised values: in one pass, or in two where what is normalised has different sizes.

A square ranges over the square of what values range over.
Where one token is a twentieth of another, its squares are a four-hundredth, and 8 bits have no codes for them.
The mean of magnitudes ranges as the values do.
So a first pass multiplies by about its reciprocal, after which all sizes are alike.
A second pass normalises what the first has given, so how the first factor was rounded does not matter.

The mean is taken off before the first pass or after it.
After it, the difference is rounded where all sizes are alike; before it, nothing is lost to a mean that is far greater
than the differences from it.

Where few values are far greater than the others, as in sparse maps, squares of most have no codes within one token.
Then squares are averaged in two parts, each with a scale of its own: up to a limit, and what is above it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np
import numpy.typing as npt

from ..float_graph import FloatGraph

#: An operator, its operands, and a short name of its result.
Step = tuple[str, Sequence[str], str]
#: From the short names of a tensor and of a result to steps, of which the last one has what is wanted.
Steps = Callable[[str, str], Sequence[Step]]
Rows = npt.NDArray[np.floating]

_CODES, _LEAST_CODE = 255, -128
#: A spelling is good enough with noise 2 dB above that of codes in front and behind alone, or half a decibel above the
#: least of all spellings.
_ENOUGH, _AS_GOOD = 10**0.2, 10**0.05
#: Of what has less than this share of the greatest size, the first pass leaves something to the second.
_LEAST_SHARE = 1 / 32
#: Of the greatest magnitude: up to there squares have a scale of their own, 16 times finer.
_LIMIT_SHARE = 1 / 4
#: An epsilon of less, relative to the squares of the second pass, is taken for a constant there.
_NEGLIGIBLE = 1e-5


class Passes(Enum):
    """How values are normalised."""

    ONE = auto()
    CENTRED_FIRST = auto()
    SCALED_FIRST = auto()


@dataclass(frozen=True)
class Spelling:
    """How a normalisation is spelled.

    Attributes
    ----------
    passes : Passes
    in_parts : bool
        Whether squares are averaged in two parts.
    is_centred : bool
        Whether the mean is taken off, which an RMS normalisation does not do.
    """

    passes: Passes = Passes.ONE
    in_parts: bool = False
    is_centred: bool = True


def normalising(
    graph: FloatGraph,
    name: str,
    source: str,
    epsilon: float,
    rows: Rows | None,
    *,
    centred: Steps | None,
    averaged: Steps,
) -> list[Step]:
    """The steps from a tensor to ``normalised``.

    Parameters
    ----------
    graph : FloatGraph
    name, source : str
        Of tensors: after the first, constants are called; the other is normalised.
    epsilon : float
        What is added to a variance.
    rows : float[rows, values] or None
        Of ``source``, in the samples: each row is normalised by itself. None where they are not known.
    centred : callable or None
        What takes off the mean of what is normalised together; None for an RMS normalisation.
    averaged : callable
        What is that mean.
    """

    def constant(key: str, value: float) -> str:
        return graph.constant(f"{name}_{key}", np.array(value))

    is_centred = centred is not None
    spelling = Spelling(is_centred=is_centred) if rows is None else best_spelling(rows, epsilon, is_centred=is_centred)
    steps: list[Step] = []
    if centred is not None and spelling.passes is not Passes.SCALED_FIRST:
        steps, source = [*centred(source, "difference")], "difference"
    values, added = source, constant("epsilon", epsilon)
    if rows is not None and spelling.passes is not Passes.ONE:
        least = _least_size(rows, epsilon)
        # Codes of what is never negative are not either.
        is_signed = bool(steps) or rows.min() < 0
        size = averaged("magnitude" if is_signed else source, "size")
        steps += [
            *([("Abs", [source], "magnitude")] if is_signed else []),
            *size,
            ("Add", [size[-1][2], constant("least", least)], "raised"),
            ("Reciprocal", ["raised"], "gain"),
            ("Mul", [source, "gain"], "scaled"),
        ]
        values = "scaled"
        if centred is not None and spelling.passes is Passes.SCALED_FIRST:
            steps, values = [*steps, *centred("scaled", "even")], "even"
        if epsilon > _NEGLIGIBLE * least**2:
            steps += [("Mul", ["gain", "gain"], "square_gain"), ("Mul", ["square_gain", added], "gained_epsilon")]
            added = "gained_epsilon"
        else:
            added = constant("epsilon", epsilon / least**2)
    squares = averaged("square", "variance")
    variance = squares[-1][2]
    if rows is not None and spelling.in_parts:
        limit = _limit(rows, epsilon, spelling)
        excesses = averaged("excess", "excess_variance")
        steps += [
            ("Abs", [values], "absolute"),
            ("Min", ["absolute", constant("limit", limit)], "bounded"),
            ("Mul", ["bounded", "bounded"], "square"),
            *squares,
            # Above the limit, the difference of squares.
            ("Sub", ["absolute", constant("limit", limit)], "above"),
            ("Max", ["above", constant("zero", 0.0)], "excess_root"),
            ("Add", ["excess_root", constant("limits", 2 * limit)], "excess_sum"),
            ("Mul", ["excess_root", "excess_sum"], "excess"),
            *excesses,
            ("Add", [variance, excesses[-1][2]], "whole_variance"),
        ]
        variance = "whole_variance"
    else:
        steps += [("Mul", [values, values], "square"), *squares]
    return [
        *steps,
        ("Add", [variance, added], "positive"),
        ("Sqrt", ["positive"], "deviation"),
        ("Reciprocal", ["deviation"], "factor"),
        ("Mul", [values, "factor"], "normalised"),
    ]


def best_spelling(rows: Rows, epsilon: float, *, is_centred: bool = True) -> Spelling:
    """Normalise rows in int8 in each way, and choose one that is good enough with the fewest layers.

    Parameters
    ----------
    rows : float[rows, values]
    epsilon : float
    is_centred : bool
        Whether the mean is taken off.
    """
    rows, plain = rows.astype(np.float64), Spelling(is_centred=is_centred)
    if not (rows.std(axis=1) if is_centred else rows).any():
        return plain
    twice = (Passes.CENTRED_FIRST, Passes.SCALED_FIRST) if is_centred else (Passes.SCALED_FIRST,)
    # Those with fewer layers first, and as many beside each other.
    spellings = [
        [Spelling(one, in_parts, is_centred) for one in passes]
        for in_parts in (False, True)
        for passes in ((Passes.ONE,), twice)
    ]
    noise = {spelling: _noise(rows, epsilon, spelling) for alike in spellings for spelling in alike}
    most = max(_ENOUGH * _noise(rows, epsilon, plain, inner=False), _AS_GOOD * min(noise.values()))
    best = (min(alike, key=lambda spelling: noise[spelling]) for alike in spellings)
    # Noise is no number where values overflow.
    return next((spelling for spelling in best if noise[spelling] <= most), plain)


def _least_size(rows: Rows, epsilon: float) -> float:
    return float(max(np.abs(rows).mean(axis=1).max() * _LEAST_SHARE, np.sqrt(epsilon)))


def _limit(rows: Rows, epsilon: float, spelling: Spelling) -> float:
    values, _ = _scaled(rows, epsilon, spelling, lambda name, exact: exact)
    return float(np.abs(values).max() * _LIMIT_SHARE)


def _noise(rows: Rows, epsilon: float, spelling: Spelling, *, inner: bool = True) -> float:
    """The power of what codes change: those of all tensors, or without ``inner`` ones, as with the rest in float."""
    ranges: dict[str, tuple[float, float]] = {}

    def measured(name: str, values: Rows) -> Rows:
        ranges[name] = min(values.min(), 0.0), max(values.max(), 0.0)
        return values

    def coded(name: str, values: Rows) -> Rows:
        if not inner and name not in ("source", "normalised"):
            return values
        least, greatest = ranges[name]
        scale = (greatest - least) / _CODES or 1.0
        zero = np.rint(_LEAST_CODE - least / scale)
        return (np.clip(np.rint(values / scale) + zero, _LEAST_CODE, _LEAST_CODE + _CODES) - zero) * scale

    exact, found = (_normalised(rows, epsilon, spelling, code) for code in (measured, coded))
    return float(np.square(found - exact).mean())


def _mean(values: Rows) -> Rows:
    return values.mean(axis=1, keepdims=True)


def _normalised(rows: Rows, epsilon: float, spelling: Spelling, code: Callable[[str, Rows], Rows]) -> Rows:
    """Rows normalised as :func:`normalising` spells it; ``code`` is what each tensor becomes."""
    values, added = _scaled(rows, epsilon, spelling, code)
    squares = values**2
    if spelling.in_parts:
        bounded = np.minimum(squares, _limit(rows, epsilon, spelling) ** 2)
        parts = {"square": bounded, "excess": squares - bounded}
    else:
        parts = {"square": squares}
    means = [code(f"{name}_variance", _mean(code(name, part))) for name, part in parts.items()]
    variance = np.add.reduce(means)
    # Nothing is left of a row of equal values, whatever it is multiplied by.
    positive = np.maximum(code("variance", variance) + added, np.finfo(np.float32).tiny)
    return code("normalised", values * code("factor", 1 / np.sqrt(positive)))


def _scaled(rows: Rows, epsilon: float, spelling: Spelling, code: Callable[[str, Rows], Rows]) -> tuple[Rows, Rows]:
    """What is squared, and what is added to the variance of that."""
    values, added, passes = code("source", rows), np.array(epsilon), spelling.passes
    if spelling.is_centred and passes is not Passes.SCALED_FIRST:
        values = code("difference", values - _mean(values))
    if passes is not Passes.ONE:
        gain = code("gain", 1 / (code("size", _mean(np.abs(values))) + _least_size(rows, epsilon)))
        values, added = code("scaled", values * gain), code("epsilon", epsilon * gain**2)
    if spelling.is_centred and passes is Passes.SCALED_FIRST:
        values = code("even", values - _mean(values))
    return values, added
