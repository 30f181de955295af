"""C as text: names, strings, comments and arrays."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Bytes in a line of an array.
_BYTES_IN_A_LINE = 24
_NAME = re.compile("[a-z][a-z0-9_]{0,40}")
#: Words of C and C++, and what main.c and the driver's files have.
_TAKEN = frozenset(
    (
        *("and", "auto", "bool", "break", "case", "catch", "char", "class", "const", "continue", "default", "delete"),
        *("do", "double", "else", "enum", "explicit", "export", "extern", "false", "float", "for", "friend", "goto"),
        *("if", "inline", "int", "long", "mutable", "namespace", "new", "not", "operator", "or", "private"),
        *("protected", "public", "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct"),
        *("switch", "template", "this", "throw", "true", "try", "typedef", "typename", "union", "unsigned", "using"),
        *("virtual", "void", "volatile", "while", "xor"),
        *("arena_base", "arena_bytes", "body", "device", "failed", "index", "main", "place", "platform", "stages"),
        *("text", "transport", "abort", "exit"),
    )
)
#: How the other names of these files begin.
_PREFIXES = ("lutterfly", "stage_", "content_", "input", "output", "int8", "int16", "int32", "int64", "uint")


def check_name(name: str) -> None:
    """Raise ValueError unless a model may be called so in C."""
    if not _NAME.fullmatch(name) or name in _TAKEN or name.startswith(_PREFIXES):
        raise ValueError(
            f"name must be a word of small letters, digits and _ that neither C nor the driver has, not {name}; "
            "choose another --name"
        )


def string(text: str) -> str:
    """A string literal, whatever is in the text."""
    shown = (chr(code) if 32 <= code < 127 and chr(code) not in '"\\?' else f"\\{code:03o}" for code in text.encode())
    return f'"{"".join(shown)}"'


def comment(lines: Iterable[str]) -> str:
    """A comment of several lines, whatever is in them."""
    plain = (line.encode("ascii", "replace").decode().replace("*/", "* /").replace("/*", "/ *") for line in lines)
    shown = ("".join(letter if letter.isprintable() else "?" for letter in line) for line in plain)
    return "/* " + "\n".join(f" * {line}".rstrip() for line in shown)[3:] + "\n */\n"


def numbers(values: Iterable[int]) -> str:
    """The initialiser of a short array."""
    return "{" + ", ".join(f"{value}u" for value in values) + "}"


def byte_array(name: str, data: bytes) -> str:
    """The definition of an array of bytes that no other file sees."""
    lines = (data[at : at + _BYTES_IN_A_LINE] for at in range(0, len(data), _BYTES_IN_A_LINE))
    body = "".join(f"    {','.join(map(str, line))},\n" for line in lines)
    return f"static const uint8_t {name}[{len(data)}] = {{\n{body}}};\n"
