"""Names of quantisation schemes, as people write them: ``q3.4``, ``uq0.16``, ``int8:scale=0.05,zero_point=-3``."""

from __future__ import annotations

import math
import re

from .schemes import Scheme, fixed_point

FORMS = "qM.N, uqM.N, or int8, uint8, int16 or uint16 with :scale=S, as int8:scale=0.05,zero_point=-3"

_FIXED_POINT = re.compile(r"(u?)q([0-9]{1,3})\.([0-9]{1,3})")
_INTEGER = re.compile(r"(u?)int(8|16)")


def parse(text: str) -> Scheme:
    """Read a name.

    Parameters
    ----------
    text : str
        ``qM.N`` or ``uqM.N`` (fixed point), or ``int8``, ``uint8``, ``int16`` or ``uint16`` with options after a
        colon, separated by commas: ``scale=S``, which these need, ``zero_point=Z`` (by default 0). Signed ones may have
        ``symmetric``: the least code is unused.

    Raises
    ------
    ValueError
        If it is not the name of a scheme; the message says what is wrong, and what would be right.
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
    """The shortest name: that of fixed point wherever a scheme is one."""
    symmetric = ["symmetric"] * scheme.is_symmetric
    fraction, exponent = math.frexp(scheme.scale)
    fraction_bits, value_bits = 1 - exponent, scheme.bits - scheme.is_signed
    if fraction == 0.5 and not scheme.zero_point and 0 <= fraction_bits <= value_bits:
        name = f"{'' if scheme.is_signed else 'u'}q{value_bits - fraction_bits}.{fraction_bits}"
        return ":".join([name, *symmetric])
    # As few digits as float32 needs: repr of the float64 would have more.
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
