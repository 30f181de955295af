"""The files that `lutterfly export` writes."""

from __future__ import annotations

from pathlib import Path
from string import Template

from ...golden import c_header
from .model_source import ModelSource

_HERE = Path(__file__).parent
#: As they are; main.c is made for the model.
DRIVER = ("lutterfly.h", "lutterfly.c", "lutterfly_text.c")
EXAMPLE = ("platform.h", "platform.c")
MAIN = "main.c"


def file_names(name: str) -> tuple[str, ...]:
    """What the files for a model of this name are called."""
    return (f"{name}.h", f"{name}.c", c_header.NAME, *DRIVER, *EXAMPLE, MAIN)


def files(source: ModelSource) -> dict[str, bytes]:
    """Every file by its name: the model, the registers' header, the driver, an example."""
    name = source.name
    texts = {f"{name}.h": source.header, f"{name}.c": source.source, c_header.NAME: c_header.text()}
    texts |= {file: (_HERE / file).read_text(encoding="ascii") for file in (*DRIVER, *EXAMPLE)}
    template = Template((_HERE / MAIN).read_text(encoding="ascii"))
    texts[MAIN] = template.substitute(name=name, NAME=name.upper())
    found = {file: text.encode("ascii") for file, text in texts.items()}
    assert tuple(found) == file_names(name)
    return found
