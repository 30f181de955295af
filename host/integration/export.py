"""Export a compiled program as C: the files that `lutterfly export` writes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from string import Template

import numpy as np
from onnx import GraphProto

from ...golden import c_header
from ...golden.program.program import Port, Program, Queues
from ...golden.program.stages import Stage, stages
from ...golden.units import Queue
from ..driver.driver import cycle_limit
from ..model.model import Model
from ..model.onnx_graph import initial_values

# C source text: names, strings, comments and arrays.

#: Number of bytes in a line of an array.
_BYTES_IN_A_LINE = 24
_NAME = re.compile("[a-z][a-z0-9_]{0,40}")
#: Keywords of C and C++, and names of main.c and of the driver's files.
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
#: Prefixes of the other names in these files.
_PREFIXES = ("lutterfly", "stage_", "content_", "input", "output", "int8", "int16", "int32", "int64", "uint")


def check_name(name: str) -> None:
    """Raise ValueError unless a model may have a name in C."""
    if not _NAME.fullmatch(name) or name in _TAKEN or name.startswith(_PREFIXES):
        raise ValueError(
            f"name must be a word of small letters, digits and _ that neither C nor the driver has, not {name}; "
            "choose another --name"
        )


def string(text: str) -> str:
    """Return a string literal for any text."""
    shown = (chr(code) if 32 <= code < 127 and chr(code) not in '"\\?' else f"\\{code:03o}" for code in text.encode())
    return f'"{"".join(shown)}"'


def comment(lines: Iterable[str]) -> str:
    """Return a comment with any lines."""
    plain = (line.encode("ascii", "replace").decode().replace("*/", "* /").replace("/*", "/ *") for line in lines)
    shown = ("".join(letter if letter.isprintable() else "?" for letter in line) for line in plain)
    return "/* " + "\n".join(f" * {line}".rstrip() for line in shown)[3:] + "\n */\n"


def numbers(values: Iterable[int]) -> str:
    """Return the initialiser of a short array."""
    return "{" + ", ".join(f"{value}u" for value in values) + "}"


def byte_array(name: str, data: bytes) -> str:
    """Return the definition of a static array of bytes."""
    lines = (data[at : at + _BYTES_IN_A_LINE] for at in range(0, len(data), _BYTES_IN_A_LINE))
    body = "".join(f"    {','.join(map(str, line))},\n" for line in lines)
    return f"static const uint8_t {name}[{len(data)}] = {{\n{body}}};\n"


# The operators that run on the host in ONNX Runtime are listed, as the caller of the C driver has to compute them.

#: Greatest number of operators that are listed; more are counted.
_MOST = 12


def host_lines(head: Model, tail: Model) -> list[str]:
    """Return a note on the operators before and after the accelerator; empty if there are none."""
    parts = (("before the inference", head), ("after it", tail))
    lines = [line for when, part in parts if part for line in (f"{when}:", *_operators(part.proto.graph))]
    if not lines:
        return []
    return ["Not in here is what runs on the host in ONNX Runtime. It is yours to do:", *lines]


def _operators(graph: GraphProto) -> list[str]:
    constants = initial_values(graph)

    def shown(name: str) -> str:
        value = constants.get(name)
        return name if value is None or value.size != 1 else f"{name} = {_number(value)}"

    lines = [
        f"  {node.op_type}({', '.join(map(shown, node.input))}) -> {', '.join(node.output)}"
        for node in graph.node[:_MOST]
    ]
    left = len(graph.node) - len(lines)
    return lines + [f"  and {left} more operators"] * (left > 0)


def _number(value: np.ndarray) -> str:
    # The fewest digits that give the same float32.
    return str(value.reshape(-1)[0])


# A compiled program in C: its stages for an arena of a chosen size, contents, ports, and numbers for the driver.

_MOST_WORD = 0xFFFF_FFFF


@dataclass(frozen=True)
class ModelSource:
    """The two files of a model.

    Attributes
    ----------
    name : str
        Name of the model in C, and of its files.
    program : Program
    arena_bytes : int
        Size of the arena that it is loaded through.
    notes : tuple of str
        Lines for the header's comment.

    Raises
    ------
    ValueError
        If C has the name already, or the arena is too small.
    """

    name: str
    program: Program
    arena_bytes: int
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_name(self.name)
        # Wrong arguments are refused here, and not when the files are made.
        _ = self.stages

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that load the constants."""
        return stages(self.program, self.arena_bytes)

    @cached_property
    def needed_bytes(self) -> int:
        """The number of bytes of the arena that are used."""
        blocks = (block for stage in self.stages for block in stage.contents)
        return max([self.program.body_bytes, *(address + len(data) for address, data in blocks)])

    @property
    def header(self) -> str:
        """The header file, which a user includes."""
        program, upper = self.program, self.name.upper()
        values = {
            "CONFIG_HASH": f"{program.config_hash:#010x}u",
            "ARENA_BYTES": f"{self.needed_bytes}u",
            "PREDICTED_CYCLES": f"{program.predicted_cycles}u",
        }
        for what, ports in (("INPUT", program.inputs), ("OUTPUT", program.outputs)):
            values |= {f"{what}S": f"{len(ports)}u", f"{what}_BYTES": f"{sum(map(_onnx_bytes, ports))}u"}
            values |= {f"{what}_{index}_BYTES": f"{_onnx_bytes(port)}u" for index, port in enumerate(ports)}
        defines = "".join(f"#define {upper}_{name} {value}\n" for name, value in values.items())
        return (
            f"{comment(self._words())}#ifndef {upper}_H\n#define {upper}_H\n\n"
            f'#include "lutterfly.h"\n\n{defines}\n'
            f'#ifdef __cplusplus\nextern "C"\n#else\nextern\n#endif\nconst lutterfly_model {self.name};\n\n#endif\n'
        )

    def _words(self) -> Iterator[str]:
        program = self.program
        yield f"{self.name}: a network for the Lutterfly accelerator of the configuration {program.config_name}"
        yield f"(hash {program.config_hash:#010x}). Generated by `lutterfly export`; do not edit."
        yield ""
        for what, ports in (("input", program.inputs), ("output", program.outputs)):
            for index, port in enumerate(ports):
                kind = "uint8" if port.unsigned else "int8"
                shape = ", ".join(map(str, port.onnx_shape))
                yield f"{what} {index}: {kind}[{shape}], {_onnx_bytes(port)} bytes: {port.name}"
        yield f"{program.predicted_cycles} cycles are predicted for an inference of samples: {program.batch}."
        yield f"It is loaded in {len(self.stages)} stages through {self.needed_bytes} bytes of the arena."
        yield from ("", *self.notes) if self.notes else ()

    @property
    def source(self) -> str:
        """The source file: constant data, and the model that points to it."""
        program, name = self.program, self.name
        parts = [f'#include "{name}.h"\n']
        for number, stage in enumerate(self.stages):
            parts += _blocks(f"stage_{number}", stage.contents)
            parts.append(_queues(f"stage_{number}_queues", stage.cores))
        rows = [
            f"{{stage_{number}_blocks, {_count(stage.contents)}u, stage_{number}_queues}}"
            for number, stage in enumerate(self.stages)
        ]
        # There may be no constants, and C has no empty arrays.
        parts.append(_table("lutterfly_stage", "stages", rows or ["{NULL, 0u, NULL}"]))
        contents = tuple(program.contents())
        parts += _blocks("content", contents)
        parts.append(_queues("body", [core.body for core in program.cores]))
        for what, ports in (("input", program.inputs), ("output", program.outputs)):
            parts += _ports(what, ports)
        fields = (
            string(name),
            string(program.config_name),
            f"{program.config_hash:#010x}u",
            f"{len(program.cores)}u",
            f"{self.needed_bytes}u",
            f"{program.predicted_cycles}u",
            f"{min(cycle_limit(program), _MOST_WORD)}u",
            f"stages, {len(self.stages)}u",
            f"content_blocks, {_count(contents)}u",
            "body",
            f"inputs, {len(program.inputs)}u",
            f"outputs, {len(program.outputs)}u",
        )
        body = "".join(f"    {field},\n" for field in fields)
        parts.append(f"const lutterfly_model {name} = {{\n{body}}};\n")
        return "\n".join(parts)


def _onnx_bytes(port: Port) -> int:
    return math.prod(port.onnx_shape)


def _table(kind: str, name: str, rows: Iterable[str]) -> str:
    body = "".join(f"    {row},\n" for row in rows)
    return f"static const {kind} {name}[] = {{\n{body}}};\n"


def _count(contents: Iterable[tuple[int, bytes]]) -> int:
    return sum(bool(data) for _, data in contents)


def _blocks(name: str, contents: Iterable[tuple[int, bytes]]) -> Iterator[str]:
    """Yield the definitions of the blocks that are written into the arena."""
    filled = [(address, data) for address, data in contents if data]
    for index, (_, data) in enumerate(filled):
        yield byte_array(f"{name}_{index}", data)
    rows = (f"{{{address}u, {len(data)}u, {name}_{index}}}" for index, (address, data) in enumerate(filled))
    yield _table("lutterfly_block", f"{name}_blocks", rows)


def _queues(name: str, cores: Iterable[Queues]) -> str:
    rows = (numbers(value for queue in Queue for value in (core[queue].address, len(core[queue]))) for core in cores)
    return _table("lutterfly_queues", name, rows)


def strides(port: Port) -> list[int]:
    """Return the strides of height, width and channels, in elements, within the part of an ONNX tensor at one
    address."""
    found, stride = [0, 0, 0], 1
    for axis in reversed(port.onnx_axes):
        found[axis] = stride
        stride *= port.shape[axis]
    return found


def _ports(what: str, ports: Sequence[Port]) -> Iterator[str]:
    rows = []
    for index, port in enumerate(ports):
        yield (
            f"static const uint32_t {what}_{index}_shape[] = {numbers(port.onnx_shape)};\n"
            f"static const uint32_t {what}_{index}_addresses[] = {numbers(port.addresses)};\n"
        )
        height, width, channels = port.shape
        rows.append(
            f"{{{string(port.name)}, {what}_{index}_shape, {len(port.onnx_shape)}u, {_onnx_bytes(port)}u, "
            f"{int(port.unsigned)}, {port.bits}, {height}u, {width}u, {channels}u,\n"
            f"     {numbers(strides(port))}, {what}_{index}_addresses, {len(port.addresses)}u}}"
        )
    yield _table("lutterfly_port", f"{what}s", rows)


_HERE = Path(__file__).parent
#: Files that are copied unchanged; main.c is made for the model.
DRIVER = ("lutterfly.h", "lutterfly.c", "lutterfly_text.c")
EXAMPLE = ("platform.h", "platform.c")
MAIN = "main.c"


def file_names(name: str) -> tuple[str, ...]:
    """Return the names of the files for a model with this name."""
    return (f"{name}.h", f"{name}.c", c_header.NAME, *DRIVER, *EXAMPLE, MAIN)


def files(source: ModelSource) -> dict[str, bytes]:
    """Return all files by name: the model, the registers' header, the driver, an example."""
    name = source.name
    texts = {f"{name}.h": source.header, f"{name}.c": source.source, c_header.NAME: c_header.text()}
    texts |= {file: (_HERE / file).read_text(encoding="ascii") for file in (*DRIVER, *EXAMPLE)}
    template = Template((_HERE / MAIN).read_text(encoding="ascii"))
    texts[MAIN] = template.substitute(name=name, NAME=name.upper())
    found = {file: text.encode("ascii") for file, text in texts.items()}
    assert tuple(found) == file_names(name)
    return found
