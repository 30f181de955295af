"""Texts of an ONNX file: names must be UTF-8, and nothing that reads the file looks."""

from __future__ import annotations

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

#: For people alone: whatever they hold does no harm.
_COMMENTS = ("doc_string",)


def wrong_text(message: Message, place: str = "") -> str:
    """The place of the first text that is not UTF-8, as in ``graph.node[3].name``; empty if all are."""
    for field, value in message.ListFields():
        if field.type not in (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_STRING) or field.name in _COMMENTS:
            continue
        here = f"{place}.{field.name}" if place else field.name
        is_single = isinstance(value, Message | str | bytes)
        for index, item in enumerate([value] if is_single else value):
            inner = here if is_single else f"{here}[{index}]"
            # A text that protobuf cannot decode comes as its bytes.
            found = wrong_text(item, inner) if isinstance(item, Message) else inner if isinstance(item, bytes) else ""
            if found:
                return found
    return ""
