"""Quantisation schemes: which real number a code of 8 or 16 bits stands for, and which code a number gets.

Source: *Method and computing tool for determining a transfer function between pairs of successive layers of a neural
network* (EP 19290051.2): uniform affine, asymmetric and symmetric, and fixed point Qm.n. Rounding and saturation are
those of ONNX's QuantizeLinear, in float32 as ONNX Runtime computes it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

WIDTHS = (8, 16)
#: Limits of scales: within them a scale and the value of the greatest code are normal float32 numbers.
LEAST_SCALE, GREATEST_SCALE = float(np.finfo(np.float32).tiny), 2.0**111

Float32 = npt.NDArray[np.float32]
Codes = npt.NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class Scheme:
    """Uniform affine codes; fixed point is one of them, see :func:`fixed_point`.

    Attributes
    ----------
    bits : int
        8 or 16.
    is_signed : bool
    scale : float
        The step between the values of neighbouring codes; rounded to float32.
    zero_point : int
        The code that stands for zero.
    is_symmetric : bool
        The least code is unused: there are as many negative codes as positive ones.

    Raises
    ------
    ValueError
        If the width is another one, the scale is not between 2**-126 and 2**111, the zero point is not a code, or a
        symmetric scheme is unsigned or has a zero point other than 0.
    """

    bits: int
    is_signed: bool
    scale: float
    zero_point: int = 0
    is_symmetric: bool = False

    def __post_init__(self) -> None:
        if self.bits not in WIDTHS:
            raise ValueError(f"bits must be {' or '.join(map(str, WIDTHS))}, not {self.bits}")
        with np.errstate(over="ignore"):
            rounded = float(np.float32(self.scale))
        if not LEAST_SCALE <= rounded <= GREATEST_SCALE:
            raise ValueError(f"scale must be between {LEAST_SCALE:g} and {GREATEST_SCALE:g}, not {self.scale}")
        object.__setattr__(self, "scale", rounded)
        if self.is_symmetric and not self.is_signed:
            raise ValueError(f"symmetric codes must be signed, not {self.dtype}")
        if self.is_symmetric and self.zero_point:
            raise ValueError(f"zero_point of symmetric codes must be 0, not {self.zero_point}")
        if not self.least <= self.zero_point <= self.greatest:
            raise ValueError(f"zero_point must be between {self.least} and {self.greatest}, not {self.zero_point}")

    @property
    def dtype(self) -> np.dtype:
        """The type of the codes: int8, uint8, int16 or uint16."""
        return np.dtype(f"{'' if self.is_signed else 'u'}int{self.bits}")

    @property
    def least(self) -> int:
        """The least code (``min_j`` in the source): 0, ``-2**(bits - 1)``, or one more if symmetric."""
        return -(1 << self.bits - 1) + self.is_symmetric if self.is_signed else 0

    @property
    def greatest(self) -> int:
        """The greatest code."""
        return (1 << self.bits - self.is_signed) - 1

    @property
    def codes(self) -> Codes:
        """All codes in order: ``dtype[greatest - least + 1]``."""
        return np.arange(self.least, self.greatest + 1).astype(self.dtype)

    @property
    def limits(self) -> tuple[float, float]:
        """The values of the least and the greatest code."""
        low, high = self.dequantise(np.array([self.least, self.greatest], self.dtype))
        return float(low), float(high)

    def quantise(self, values: Float32) -> Codes:
        """Quantise: give every number the code whose value is nearest.

        Parameters
        ----------
        values : float32[...]
            Finite.

        Returns
        -------
        dtype[...]
            ``clip(rint(f32(values / scale)) + zero_point, least, greatest)``: halves are rounded to the even integer,
            before the zero point is added, and values beyond the codes saturate.

        Raises
        ------
        TypeError
            If ``values`` is not float32.
        ValueError
            If a value is infinite or not a number.
        """
        values = np.asarray(values)
        if values.dtype != np.float32:
            raise TypeError(f"values must be float32, not {values.dtype}")
        bad = values[~np.isfinite(values)]
        if bad.size:
            raise ValueError(f"values must be finite, not {bad.flat[0]}")
        # A quotient beyond float32 is infinite, and saturates like any other.
        with np.errstate(over="ignore"):
            steps = np.rint(values / np.float32(self.scale)).astype(np.float64)
        return np.clip(steps + self.zero_point, self.least, self.greatest).astype(self.dtype)

    def dequantise(self, codes: Codes) -> Float32:
        """Dequantise: give the values of codes.

        Parameters
        ----------
        codes : dtype[...]

        Returns
        -------
        float32[...]
            ``f32((codes - zero_point) * scale)``.

        Raises
        ------
        TypeError
            If ``codes`` has another type.
        ValueError
            If a code is the unused one of a symmetric scheme.
        """
        codes = np.asarray(codes)
        if codes.dtype != self.dtype:
            raise TypeError(f"codes must be {self.dtype}, not {codes.dtype}")
        if codes.size and codes.min() < self.least:
            raise ValueError(f"codes must be between {self.least} and {self.greatest}, not {codes.min()}")
        # At most 17 bits: float32 holds every difference.
        return (codes.astype(np.int32) - self.zero_point).astype(np.float32) * np.float32(self.scale)


def fixed_point(integer_bits: int, fraction_bits: int, *, is_signed: bool = True, is_symmetric: bool = False) -> Scheme:
    """Fixed point Qm.n: a code stands for ``code * 2**-fraction_bits``.

    Parameters
    ----------
    integer_bits, fraction_bits : int
        m and n, not negative. With the sign bit, which signed codes have beside them, they make up 8 or 16 bits.
    is_signed, is_symmetric : bool

    Raises
    ------
    ValueError
        If the bits do not add up; the message says which would.
    """
    bits = integer_bits + fraction_bits + is_signed
    if bits not in WIDTHS or min(integer_bits, fraction_bits) < 0:
        name, sign = ("q", "a sign bit, ") if is_signed else ("uq", "")
        found = f"{name}{integer_bits}.{fraction_bits}"
        instead = [(width - is_signed - fraction_bits, fraction_bits) for width in WIDTHS]
        instead += [(integer_bits, width - is_signed - integer_bits) for width in WIDTHS]
        near = [f"{name}{m}.{n}" for m, n in sorted(instead, key=sum) if min(m, n) >= 0]
        raise ValueError(
            f"fixed point must have 8 or 16 bits ({sign}m before the point and n after it), not {bits} as {found}; "
            f"{' or '.join(dict.fromkeys(near)) or f'{name}{WIDTHS[0] - is_signed}.0'} would do"
        )
    return Scheme(bits, is_signed, 2.0**-fraction_bits, is_symmetric=is_symmetric)


# Names of quantisation schemes: ``q3.4``, ``uq0.16``, ``int8:scale=0.05,zero_point=-3``.

FORMS = "qM.N, uqM.N, or int8, uint8, int16 or uint16 with :scale=S, as int8:scale=0.05,zero_point=-3"

_FIXED_POINT = re.compile(r"(u?)q([0-9]{1,3})\.([0-9]{1,3})")
_INTEGER = re.compile(r"(u?)int(8|16)")


def parse(text: str) -> Scheme:
    """Parse the name of a scheme.

    Parameters
    ----------
    text : str
        ``qM.N`` or ``uqM.N`` (fixed point), or ``int8``, ``uint8``, ``int16`` or ``uint16`` with options after a
        colon, separated by commas: ``scale=S``, which these need, ``zero_point=Z`` (by default 0). Signed ones may have
        ``symmetric``: the least code is unused.

    Raises
    ------
    ValueError
        If it is not the name of a scheme; the message names the mistake and the remedy.
    """
    kind, colon, rest = text.partition(":")
    fixed, integer = _FIXED_POINT.fullmatch(kind), _INTEGER.fullmatch(kind)
    if not fixed and not integer:
        raise ValueError(f"scheme must be {FORMS}, not {text}")
    try:
        options = _options(rest) if colon else {}
        is_symmetric = "symmetric" in options
        if fixed:
            for name in ("scale", "zero_point"):
                if name in options:
                    raise ValueError(f"{name} must be left out of fixed point, which {kind} says all of")
            bits = int(fixed[2]), int(fixed[3])
            if fixed[1] and is_symmetric:
                raise ValueError(f"symmetric codes must be signed, not {kind}")
            return fixed_point(*bits, is_signed=not fixed[1], is_symmetric=is_symmetric)
        assert integer
        if "scale" not in options:
            raise ValueError(f"scale must be given, as {kind}:scale=0.05")
        scale, zero_point = _number("scale", options["scale"]), _number("zero_point", options.get("zero_point", "0"))
        return Scheme(int(integer[2]), not integer[1], scale, _whole(zero_point), is_symmetric)
    except ValueError as error:
        raise ValueError(f"{text}: {error}") from None


def name_of(scheme: Scheme) -> str:
    """Return the shortest name of a scheme, which is that of fixed point where it is one."""
    symmetric = ["symmetric"] * scheme.is_symmetric
    fraction, exponent = math.frexp(scheme.scale)
    fraction_bits, value_bits = 1 - exponent, scheme.bits - scheme.is_signed
    if fraction == 0.5 and not scheme.zero_point and 0 <= fraction_bits <= value_bits:
        name = f"{'' if scheme.is_signed else 'u'}q{value_bits - fraction_bits}.{fraction_bits}"
        return ":".join([name, *symmetric])
    # The repr of the float64 would have more digits than float32 needs.
    scale = next(text for digits in range(1, 18) if _is_same(text := f"{scheme.scale:.{digits}g}", scheme))
    zero_point = [f"zero_point={scheme.zero_point}"] if scheme.zero_point else []
    return f"{scheme.dtype}:{','.join([f'scale={scale}', *zero_point, *symmetric])}"


def _is_same(scale: str, scheme: Scheme) -> bool:
    try:
        return Scheme(scheme.bits, scheme.is_signed, float(scale)).scale == scheme.scale
    except ValueError:
        # Rounded to few digits, the least and the greatest scale leave their range.
        return False


def _options(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in text.split(","):
        name, equals, value = word.partition("=")
        if name not in ("scale", "zero_point", "symmetric") or bool(equals) == (name == "symmetric"):
            raise ValueError(f"options must be scale=S, zero_point=Z and symmetric, not {word or 'nothing'}")
        if name in found:
            raise ValueError(f"{name} must be given once, not twice")
        found[name] = value
    return found


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name} must be a number, not {text or 'nothing'}") from None


def _whole(value: float) -> int:
    if not value.is_integer():
        raise ValueError(f"zero_point must be a whole number, not {value}")
    return int(value)
