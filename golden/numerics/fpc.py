"""Fast pointwise convolution in integers: a butterfly of stages between the codes of two feature maps.

The values between stages have 16 bits. A code enters as ``(code - zero_point) << input_shift``. A stage rounds the sum
of its two products once, half to even, adds the values of skips, and saturates once; the epilogue requantises the
first values to codes. Every sum stays below 2**24 in magnitude, so float32 computes the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from ..elements import NARROW_BITS
from .butterfly import Density, Pattern, lane_exchange, pixel_words
from .convolution import Int8, Int32
from .requant import pack_parameters, requantise

# A fast pointwise convolution consists of stages with weights, and an epilogue.

#: Fraction bits of a weight, and the weight that stands for 1.
FRACTION_BITS = 6
UNIT_WEIGHT = 1 << FRACTION_BITS
#: Bits of a value between stages, and of a bias.
VALUE_BITS = NARROW_BITS
LEAST_VALUE, GREATEST_VALUE = -(1 << VALUE_BITS - 1), (1 << VALUE_BITS - 1) - 1
#: The greatest shift of input codes that fits a value, and the greatest shift of an epilogue without a multiplication.
MOST_INPUT_SHIFT = 7
MOST_EPILOGUE_SHIFT = 7
#: Exponents of the powers of two by which a stage may divide, beyond the unit of its weights, to limit growth.
GROWTH_SHIFTS = (0, 1)

Int16 = npt.NDArray[np.int16]
Float32 = npt.NDArray[np.float32]


class FloatStage(NamedTuple):
    """A stage in float32.

    Attributes
    ----------
    partners : int64[width]
        The index of each value's partner.
    own, cross : float32[width, 1] or None
        Weights of values and of their partners; None where all are one.
    scale : float32
        The factor for the sum of both products.
    growth : float
        The greatest ratio of a result, before it is rounded, to the inputs.
    """

    partners: npt.NDArray[np.int64]
    own: Float32 | None
    cross: Float32 | None
    scale: np.float32
    growth: float


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
        Left shift of the input codes, 0 to 7.

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
    def float_weights(self) -> list[FloatStage]:
        """The stages in float32, see ``fpc_float.py``."""
        indices, found = np.arange(self.pattern.width), []
        for distance, own, cross, shift in zip(
            self.pattern.distances, self.own, self.cross, self.growth_shifts, strict=True
        ):
            magnitudes = np.abs(own, dtype=np.int32) + np.abs(cross, dtype=np.int32)
            factors = _in_float(own, FRACTION_BITS), _in_float(cross, FRACTION_BITS)
            growth = int(magnitudes.max()) / (UNIT_WEIGHT << shift)
            found.append(FloatStage(indices ^ distance, *factors, np.float32(2.0**-shift), growth))
        return found

    def _check_count(self, name: str, values: tuple) -> None:
        if len(values) != self.pattern.stages:
            raise ValueError(f"{name} must be {self.pattern.stages}, one for each stage, not {len(values)}")


@dataclass(frozen=True, eq=False)
class FpcEpilogue:
    """The epilogue from values to codes: ``clip(rint((value + bias) * scale) + zero_point, low, high)``.

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
        # The requantisation refuses wrong scales and codes.
        requantise(np.zeros(bias.shape, np.int32), self.parameters, self.zero_point, self.low, self.high)

    @property
    def parameters(self) -> npt.NDArray[np.uint64]:
        """The parameters of the requantiser: uint64[outputs], see :func:`~.requant.pack_parameters`."""
        return pack_parameters(self.bias.astype(np.int32), self.scale)

    @property
    def shift(self) -> int | None:
        """k if all scales are ``2**-k``, k from 0 to 7, so that a shift replaces the multiplication; else None."""
        shifts = range(MOST_EPILOGUE_SHIFT + 1)
        return next((shift for shift in shifts if (self.scale == np.float32(2.0**-shift)).all()), None)


def _in_float(weights: Int8, shift: int) -> Float32 | None:
    """Return ``weights / 2**shift`` as a column; None where all are one."""
    column = np.ldexp(weights[:, np.newaxis].astype(np.float32), -shift)
    return None if (column == 1).all() else column


def _checked(name: str, array: npt.ArrayLike, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Check that an array has integers and a shape, and return it as ``dtype``."""
    array, limits = np.asarray(array), np.iinfo(dtype)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, not {array.dtype}")
    if array.shape != shape:
        raise ValueError(f"{name} must have the shape {shape}, not {array.shape}")
    outside = array[(array < limits.min) | (array > limits.max)]
    if outside.size:
        raise ValueError(f"{name} must be between {limits.min} and {limits.max}, not {outside[0]}")
    return array.astype(dtype)


def fast_pointwise(codes: Int8, zero_point: int, stages: Stages, epilogue: FpcEpilogue) -> Int8:
    """Compute a fast pointwise convolution: :func:`enter`, :func:`run_stages`, :func:`requantise_values`.

    Parameters
    ----------
    codes : int8[..., inputs]
    zero_point : int
        Zero point of ``codes``.
    stages : Stages
    epilogue : FpcEpilogue
        Epilogue of as many channels as the pattern has outputs.

    Returns
    -------
    int8[..., outputs]

    Raises
    ------
    TypeError, ValueError
        As these functions; also if the epilogue has another number of channels.
    """
    outputs = stages.pattern.outputs
    if len(epilogue.bias) != outputs:
        raise ValueError(f"bias must be of {outputs} outputs, not {len(epilogue.bias)}")
    values = run_stages(enter(codes, zero_point, stages), stages)
    return requantise_values(values[..., :outputs], epilogue)


def enter(codes: Int8, zero_point: int, stages: Stages) -> Int16:
    """Turn codes into values: ``(code - zero_point) << input_shift``, and zero beyond the last channel.

    Returns
    -------
    int16[..., width]

    Raises
    ------
    TypeError
        If ``codes`` is not int8.
    ValueError
        If its channels are not the pattern's inputs, or the zero point is no int8 code.
    """
    codes, pattern = np.asarray(codes), stages.pattern
    if codes.dtype != np.int8:
        raise TypeError(f"codes must be int8, not {codes.dtype}")
    if not codes.ndim or codes.shape[-1] != pattern.inputs:
        raise ValueError(f"codes must have {pattern.inputs} channels, not the shape {codes.shape}")
    if not -128 <= zero_point <= 127:
        raise ValueError(f"zero_point must be between -128 and 127, not {zero_point}")
    values = np.zeros((*codes.shape[:-1], pattern.width), np.int16)
    values[..., : pattern.inputs] = (codes.astype(np.int16) - zero_point) << stages.input_shift
    return values


def run_stages(values: Int16, stages: Stages) -> Int16:
    """Compute all stages.

    Parameters
    ----------
    values : int16[..., width]
    stages : Stages

    Returns
    -------
    int16[..., width]
        After the last stage. Each gives for every index i, with D its pair distance,
        ``saturate(rint((own[i] * value[i] + cross[i] * value[i ^ D]) / 2**(6 + growth_shift)) + skipped)``; halves go
        to even, and ``skipped`` is the sum of the skips that end there.

    Raises
    ------
    TypeError
        If ``values`` is not int16.
    ValueError
        If their last axis is not the pattern's width.
    """
    values, pattern = np.asarray(values), stages.pattern
    if values.dtype != np.int16:
        raise TypeError(f"values must be int16, not {values.dtype}")
    if not values.ndim or values.shape[-1] != pattern.width:
        raise ValueError(f"values must have {pattern.width} channels, not the shape {values.shape}")
    entering, indices = [values], np.arange(pattern.width)
    for stage, distance in enumerate(pattern.distances):
        before = entering[-1].astype(np.int32)
        total = stages.own[stage] * before + stages.cross[stage] * before[..., indices ^ distance]
        result = round_shift(total, FRACTION_BITS + stages.growth_shifts[stage])
        for first, last in pattern.skips:
            if last == stage:
                result += entering[first]
        entering.append(np.clip(result, LEAST_VALUE, GREATEST_VALUE).astype(np.int16))
    return entering[-1]


def requantise_values(values: Int16, epilogue: FpcEpilogue) -> Int8:
    """Requantise values as every sum is requantised, see :func:`~lutterfly.golden.numerics.requant.requantise`.

    Parameters
    ----------
    values : int16[..., outputs]
    epilogue : FpcEpilogue

    Returns
    -------
    int8[..., outputs]
    """
    return requantise(values.astype(np.int32), epilogue.parameters, epilogue.zero_point, epilogue.low, epilogue.high)


def shift_values(values: Int16, epilogue: FpcEpilogue) -> Int8:
    """Return the codes of :func:`requantise_values`, computed by shifts, where the scale is a power of two.

    Raises
    ------
    ValueError
        If :attr:`FpcEpilogue.shift` is None.
    """
    if epilogue.shift is None:
        raise ValueError(
            f"scale must be 2**-k for all channels, k from 0 to {MOST_EPILOGUE_SHIFT}, "
            f"not from {epilogue.scale.min()} to {epilogue.scale.max()}"
        )
    rounded = round_shift(values.astype(np.int32) + epilogue.bias, epilogue.shift)
    return np.clip(rounded + epilogue.zero_point, epilogue.low, epilogue.high).astype(np.int8)


def round_shift(total: Int32, shift: int) -> Int32:
    """Return ``total / 2**shift`` rounded to the nearest integer, halves to even."""
    quotient = total >> shift
    twice_rest = (total - (quotient << shift)) << 1
    unit = 1 << shift
    return quotient + ((twice_rest > unit) | ((twice_rest == unit) & (quotient & 1 == 1)))


def dense_matrix(stages: Stages) -> npt.NDArray[np.object_]:
    """Return the matrix that the stages would compute without rounding, saturation and the shift of the codes.

    Returns
    -------
    Fraction[outputs, inputs]
    """
    pattern, indices = stages.pattern, np.arange(stages.pattern.width)
    # The computation is in integers over one power of two, as fractions look for common divisors in every product.
    entering, bits = [np.eye(pattern.width, dtype=object)], [0]
    for stage, distance in enumerate(pattern.distances):
        own, cross = (weights.astype(object)[:, np.newaxis] for weights in (stages.own[stage], stages.cross[stage]))
        bits.append(bits[-1] + FRACTION_BITS + stages.growth_shifts[stage])
        result = own * entering[-1] + cross * entering[-1][indices ^ distance]
        for first, last in pattern.skips:
            if last == stage:
                result = result + entering[first] * (1 << bits[-1] - bits[first])
        entering.append(result)
    kept = entering[-1][: pattern.outputs, : pattern.inputs]
    return np.vectorize(lambda numerator: Fraction(int(numerator), 1 << bits[-1]), otypes=[object])(kept)


# Placement of a butterfly's weights in the words of hardware for a larger butterfly.
#
# Hardware for a pattern runs every function whose stages are among its own, in their order: the other stages pass
# values on.


@dataclass(frozen=True, eq=False)
class PlacedFunction:
    """A function, placed on hardware for a pattern.

    Attributes
    ----------
    words : int8[positions, columns, lanes]
        Words of weights for each word of a pixel. Every stage of the hardware has a column for each trained weight, own
        ones first. A partner within the word is multiplied in its own lane.
    halves, skips : int
        A bit for each stage or skip, the first one's lowest: see :class:`~lutterfly.hdl.engines.butterfly.Butterfly`.
    """

    words: Int8
    halves: int
    skips: int


def place(stages: Stages, hardware: Pattern, lanes: int) -> PlacedFunction:
    """Place a function on hardware.

    Parameters
    ----------
    stages : Stages
    hardware : Pattern
    lanes : int
        Values in a word, a power of two.

    Raises
    ------
    ValueError
        If the hardware lacks a stage of a distance or has another order, or if it lacks a weight of a stage or a skip.
    """
    of_stage = stages_on(stages.pattern, hardware)
    positions = pixel_words(stages.pattern.width, lanes)
    halves = sum(stages.growth_shifts[stage] << index for index, stage in of_stage.items())
    columns = []
    for index, is_own, order in _columns(hardware, lanes):
        stage = of_stage.get(index)
        if stage is None:
            weights = np.full(stages.pattern.width, UNIT_WEIGHT if is_own else 0, np.int8)
        else:
            weights = (stages.own if is_own else stages.cross)[stage]
        columns.append(_words(weights, positions, lanes)[:, order])
    skips = sum(1 << hardware.skips.index(skip) for skip in _skips_on(stages.pattern, hardware, of_stage))
    words = np.stack(columns, axis=1) if columns else np.zeros((positions, 0, lanes), np.int8)
    return PlacedFunction(words, halves, skips)


def stages_on(pattern: Pattern, hardware: Pattern) -> dict[int, int]:
    """Return the pattern's stage for each stage of the hardware that the pattern uses.

    Raises
    ------
    ValueError
        As :func:`place`.
    """
    if pattern.width > hardware.width:
        raise ValueError(f"channels must be at most {hardware.width}, not {max(pattern.inputs, pattern.outputs)}")
    used = [index for index, distance in enumerate(hardware.distances) if distance in pattern.distances]
    order = tuple(hardware.distances[index] for index in used)
    if order != pattern.distances:
        raise ValueError(f"distances must be {list(order)}, in this order, not {list(pattern.distances)}")
    found = {index: stage for stage, index in enumerate(used)}
    for index, stage in found.items():
        built, wanted = hardware.densities[index], pattern.densities[stage]
        if _weights(wanted) > _weights(built):
            raise ValueError(f"densities[{stage}] must be at most {built}, not {wanted}")
    _skips_on(pattern, hardware, found)
    return found


def _skips_on(pattern: Pattern, hardware: Pattern, of_stage: dict[int, int]) -> list[tuple[int, int]]:
    """Return the hardware's skips for a pattern's skips."""
    on = {stage: index for index, stage in of_stage.items()}
    skips = [(on[first], on[last]) for first, last in pattern.skips]
    for skip, built in zip(pattern.skips, skips, strict=True):
        if built not in hardware.skips:
            raise ValueError(f"skips must be among {list(hardware.skips)}, and {skip} is {built} there")
    return skips


def _weights(density: Density) -> int:
    return density.trains_own + density.trains_cross


def _columns(hardware: Pattern, lanes: int) -> Iterator[tuple[int, bool, NDArray[np.intp]]]:
    """Yield, for each column of weights, its stage, whether it has own weights, and the lane of the result of each
    lane's weight."""
    for index, (distance, density) in enumerate(zip(hardware.distances, hardware.densities, strict=True)):
        if density.trains_own:
            yield index, True, np.arange(lanes)
        if density.trains_cross:
            yield index, False, np.arange(lanes) ^ lane_exchange(distance, lanes)


def _words(weights: Int8, positions: int, lanes: int) -> Int8:
    """Return the weights as words, int8[positions, lanes], filled up with zeros."""
    padded = np.zeros(positions * lanes, np.int8)
    padded[: len(weights)] = weights
    return padded.reshape(positions, lanes)


def unplace(words: Int8, hardware: Pattern, stages: int) -> tuple[list[Int8], list[Int8]]:
    """Return the weights in words of hardware, for the stages whose pair distance is below ``2**stages``.

    Parameters
    ----------
    words : int8[positions, columns, lanes]
        Words of :func:`place`, for this many stages; further columns are ignored.
    hardware : Pattern
    stages : int

    Returns
    -------
    own, cross : list of int8[2**stages]
        Weights of each of those stages, in the hardware's order.
    """
    lanes, width = words.shape[2], 1 << stages
    unit = np.full(width, UNIT_WEIGHT, np.int8)
    own, cross = [unit] * hardware.stages, [unit] * hardware.stages
    for column, (index, is_own, order) in enumerate(_columns(hardware, lanes)):
        (own if is_own else cross)[index] = words[:, column, order].reshape(-1)[:width]
    used = [index for index, distance in enumerate(hardware.distances) if distance < width]
    return [own[index] for index in used], [cross[index] for index in used]
