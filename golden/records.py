"""Records from untrusted JSON: frozen dataclasses, with the kind of every field checked by its name.

Standard library only.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import typing
from typing import Any

_KINDS: dict[type, str] = {int: "an integer", str: "a text", bool: "true or false"}
_SHOWN_CHARACTERS = 40
#: Metadata of a field that older records lack: at its default it is not written.
LATER = {"later": True}


def to_plain(value: Any, blobs: bytearray | None = None) -> Any:
    """Convert a value to the JSON from which :func:`read` builds it again.

    Parameters
    ----------
    value : object
        A dataclass, what it holds, or a class with a ``to_plain`` of its own.
    blobs : bytearray, optional
        Buffer to which bytes of the value are appended, if it has any; JSON holds their place.
    """
    if hasattr(value, "to_plain"):
        return value.to_plain()
    if isinstance(value, tuple):
        return [to_plain(item, blobs) for item in value]
    if isinstance(value, bytes):
        if blobs is None:
            raise TypeError("blobs must be given for a value with bytes")
        blobs.extend(value)
        return {"blob": [len(blobs) - len(value), len(value)]}
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    values = {field: getattr(value, field.name) for field in dataclasses.fields(value)}
    return {
        field.name: to_plain(own, blobs)
        for field, own in values.items()
        if field.metadata != LATER or own != _default(field)
    }


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def parse(text: str | bytes) -> Any:
    """Parse JSON without ambiguities: no key given twice, no NaN, no infinities.

    Raises
    ------
    ValueError
        If the text is not unambiguous JSON.
    """
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("JSON must not be nested so deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{brief(key)} must be given once, not twice")
        found[key] = value
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"numbers must be finite, not {name}")


def read(hint: Any, plain: Any, name: str, blobs: bytes = b"") -> Any:
    """Build the value that a type hint describes from parsed JSON.

    Parameters
    ----------
    hint : type
        A dataclass (from an object), an enumeration (from a member's name), a tuple (from an array), bytes (from
        ``{"blob": [first byte, bytes]}``), int, str or bool; or a class that reads itself by ``from_plain``.
    plain : object
        The result of :func:`parse`.
    name : str
        The name in messages; inner values append theirs, as in ``layers[2].macs``.
    blobs : bytes
        The binary data from which bytes are taken.

    Raises
    ------
    ValueError
        If a field is missing, unknown, or of another kind, or if the dataclass refuses its value.
    """
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _read_record(hint, plain, name, blobs)
    if typing.get_origin(hint) is tuple:
        return _read_tuple(typing.get_args(hint), plain, name, blobs)
    if hasattr(hint, "from_plain"):
        return hint.from_plain(plain, name)
    if hint is bytes:
        return _read_blob(plain, name, blobs)
    if issubclass(hint, enum.Enum):
        if not isinstance(plain, str) or plain not in hint.__members__:
            raise wrong(name, f"one of {', '.join(hint.__members__)}", plain)
        return hint[plain]
    # To Python, true and false are integers.
    if type(plain) is not hint:
        raise wrong(name, _KINDS[hint], plain)
    return plain


def _read_record(kind: type, plain: Any, name: str, blobs: bytes) -> Any:
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if not isinstance(plain, dict):
        raise wrong(name, f"an object with the fields {', '.join(fields)}" if fields else "an empty object", plain)
    for key in plain:
        if key not in fields:
            raise ValueError(f"{name} must have no fields but {', '.join(fields) or 'none'}, and has {brief(key)}")
    hints, values = typing.get_type_hints(kind), {}
    for key, field in fields.items():
        if key in plain:
            values[key] = read(hints[key], plain[key], f"{name}.{key}", blobs)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{name}.{key} must be given, and is missing")
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _read_tuple(hints: tuple[Any, ...], plain: Any, name: str, blobs: bytes) -> tuple[Any, ...]:
    if not isinstance(plain, list):
        raise wrong(name, "an array", plain)
    if hints[-1] is Ellipsis:
        hints = hints[:1] * len(plain)
    if len(plain) != len(hints):
        raise ValueError(f"{name} must be an array of {len(hints)} values, not of {len(plain)}")
    pairs = enumerate(zip(hints, plain, strict=True))
    return tuple(read(hint, value, f"{name}[{index}]", blobs) for index, (hint, value) in pairs)


def _read_blob(plain: Any, name: str, blobs: bytes) -> bytes:
    place = plain.get("blob") if isinstance(plain, dict) and len(plain) == 1 else None
    start, size = read(tuple[int, int], place, f"{name}.blob")
    if start < 0 or size < 0 or start + size > len(blobs):
        raise ValueError(f"{name} must be within the {len(blobs)} bytes of binary data, not {size} bytes at {start}")
    return blobs[start : start + size]


def wrong(name: str, constraint: str, value: object) -> ValueError:
    """Return the error of a value that breaks a constraint."""
    return ValueError(f"{name} must be {constraint}, not {brief(value)}")


def brief(value: object) -> str:
    """A value as JSON writes it, shortened if it is long."""
    if isinstance(value, list | dict):
        return "an array" if isinstance(value, list) else "an object"
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


# Checks of numbers in configurations: errors name the field, the constraint and the value.


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
