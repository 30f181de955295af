"""What a fast pointwise convolution is made of: its stages with their weights, and its finish."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..elements import NARROW_BITS
from .butterfly import Pattern
from .convolution import Int8
from .requant import pack_parameters, requantise

#: Fraction bits of a weight, and the weight one.
FRACTION_BITS = 6
UNIT_WEIGHT = 1 << FRACTION_BITS
#: Bits of a value between stages, and of a bias.
VALUE_BITS = NARROW_BITS
LEAST_VALUE, GREATEST_VALUE = -(1 << VALUE_BITS - 1), (1 << VALUE_BITS - 1) - 1
#: The greatest shift of the codes that still fits them, and the greatest one of a finish without a multiplication.
MOST_INPUT_SHIFT = 7
MOST_FINISH_SHIFT = 7
#: Exponents of the powers of two by which a stage may divide, beyond the unit of its weights, to limit growth.
GROWTH_SHIFTS = (0, 1)

Int16 = npt.NDArray[np.int16]
Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Stages:
    """A butterfly with its weights.

    Attributes
    ----------
    pattern : Pattern
    own, cross : tuple of int8[width]
        For each stage the weights of a value and of the other one of its pair, by the index of the result, in units of
        1/64; ``UNIT_WEIGHT`` where they are not trained.
    growth_shifts : tuple of int
        For each stage 0 or 1: halve its results.
    input_shift : int
        Of the codes that enter, 0 to 7.

    Raises
    ------
    TypeError
        If weights are not integers.
    ValueError
        If weights or shifts do not fit the pattern, or are out of range.
    """

    pattern: Pattern
    own: tuple[Int8, ...]
    cross: tuple[Int8, ...]
    growth_shifts: tuple[int, ...]
    input_shift: int = 0

    def __post_init__(self) -> None:
        densities = self.pattern.densities
        for name, trained in (
            ("own", [density.trains_own for density in densities]),
            ("cross", [density.trains_cross for density in densities]),
        ):
            weights = getattr(self, name)
            self._check_count(name, weights)
            checked = tuple(
                _checked(f"{name}[{stage}]", array, (self.pattern.width,), np.int8)
                for stage, array in enumerate(weights)
            )
            for stage, (array, is_trained) in enumerate(zip(checked, trained, strict=True)):
                other = array[array != UNIT_WEIGHT]
                if not is_trained and other.size:
                    raise ValueError(
                        f"{name}[{stage}] must be {UNIT_WEIGHT} in a stage of density "
                        f"{densities[stage]}, not {other[0]}"
                    )
            object.__setattr__(self, name, checked)
        self._check_count("growth_shifts", self.growth_shifts)
        for stage, shift in enumerate(self.growth_shifts):
            if shift not in GROWTH_SHIFTS:
                raise ValueError(f"growth_shifts[{stage}] must be 0 or 1, not {shift}")
        if not 0 <= self.input_shift <= MOST_INPUT_SHIFT:
            raise ValueError(f"input_shift must be between 0 and {MOST_INPUT_SHIFT}, not {self.input_shift}")

    @cached_property
    def float_weights(self) -> list[tuple[npt.NDArray[np.int64], Float32 | None, Float32 | None]]:
        """For each stage the indices of partners, and own and cross weights float32[width, 1] with what the stage
        divides by; None where all are one."""
        indices = np.arange(self.pattern.width)
        return [
            (indices ^ distance, _in_float(own, FRACTION_BITS + shift), _in_float(cross, FRACTION_BITS + shift))
            for distance, own, cross, shift in zip(
                self.pattern.distances, self.own, self.cross, self.growth_shifts, strict=True
            )
        ]

    def _check_count(self, name: str, values: tuple) -> None:
        if len(values) != self.pattern.stages:
            raise ValueError(f"{name} must be {self.pattern.stages}, one for each stage, not {len(values)}")


@dataclass(frozen=True, eq=False)
class Finish:
    """How values become codes: ``clip(rint((value + bias) * scale) + zero_point, low, high)``.

    Attributes
    ----------
    bias : int16[outputs]
    scale : float32[outputs]
    zero_point, low, high : int
        int8 codes, ``low <= high``.

    Raises
    ------
    TypeError
        If the biases are not integers, or the scales not float32.
    ValueError
        If a bias needs more than 16 bits, a scale is negative or not finite, a code has more than 8 bits, or the shapes
        differ.
    """

    bias: Int16
    scale: Float32
    zero_point: int
    low: int = -128
    high: int = 127

    def __post_init__(self) -> None:
        bias = _checked("bias", self.bias, (len(self.bias),), np.int16)
        object.__setattr__(self, "bias", bias)
        # Refuses scales and codes as every requantisation does.
        requantise(np.zeros(bias.shape, np.int32), self.parameters, self.zero_point, self.low, self.high)

    @property
    def parameters(self) -> npt.NDArray[np.uint64]:
        """The parameters of the requantiser: uint64[outputs], see :func:`~.requant.pack_parameters`."""
        return pack_parameters(self.bias.astype(np.int32), self.scale)

    @property
    def shift(self) -> int | None:
        """k if all scales are ``2**-k``, k from 0 to 7, so that a shift replaces the multiplication; else None."""
        shifts = range(MOST_FINISH_SHIFT + 1)
        return next((shift for shift in shifts if (self.scale == np.float32(2.0**-shift)).all()), None)


def _in_float(weights: Int8, shift: int) -> Float32 | None:
    """``weights / 2**shift`` as a column; None where all are one."""
    column = np.ldexp(weights[:, np.newaxis].astype(np.float32), -shift)
    return None if (column == 1).all() else column


def _checked(name: str, array: npt.ArrayLike, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Integers of a shape as ``dtype``."""
    array, limits = np.asarray(array), np.iinfo(dtype)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, not {array.dtype}")
    if array.shape != shape:
        raise ValueError(f"{name} must have the shape {shape}, not {array.shape}")
    outside = array[(array < limits.min) | (array > limits.max)]
    if outside.size:
        raise ValueError(f"{name} must be between {limits.min} and {limits.max}, not {outside[0]}")
    return array.astype(dtype)
