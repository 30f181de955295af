"""Checks of numbers in configurations: errors name the field, the constraint and the value."""

from __future__ import annotations


def check(condition: bool, name: str, constraint: str, value: object) -> None:
    """Raise a ValueError unless the condition holds."""
    if not condition:
        raise ValueError(f"{name} must be {constraint}, not {value}")


def check_integers(part: object, *names: str) -> None:
    """Raise a TypeError unless these attributes are integers."""
    for name in names:
        value = getattr(part, name)
        # To Python, true and false are integers.
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name} must be an integer, not {value!r}")


def check_flags(part: object, *names: str) -> None:
    """Raise a TypeError unless these attributes are true or false."""
    for name in names:
        value = getattr(part, name)
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be true or false, not {value!r}")


def is_power_of_two(value: int) -> bool:
    """Whether a number is 1, 2, 4 and so on."""
    return value > 0 and value & (value - 1) == 0
