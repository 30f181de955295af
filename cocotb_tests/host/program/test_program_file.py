"""Program files: what the compiler writes is read again, and whatever else stands in a file is refused by name."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.examples import digits
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.program import FILE_VERSION, MAGIC, Program, SpilledTensor
from lutterfly.host.command.main import main
from lutterfly.host.compiler import compile_graph, compile_model
from lutterfly.host.graph import Window

HEAD = struct.Struct("<8sIIIII")
#: Where the only core is.
CORE = ("cores", 0)


@functools.cache
def program() -> Program:
    maker = GraphMaker((6, 6, 4))
    return compile_graph(maker.finish(maker.max_pool(maker.pointwise("x"), Window((2, 2)))), PRESETS["tiny"])


@functools.cache
def parts() -> tuple[Any, bytes]:
    """The JSON of a program file, and its binary part."""
    data = program().to_bytes()
    size = HEAD.unpack_from(data)[3]
    return json.loads(data[HEAD.size : HEAD.size + size]), data[HEAD.size + size :]


def written(text: bytes, blobs: bytes = b"", version: int = FILE_VERSION) -> bytes:
    """A file with this content, and the checksum of it."""
    known = program().config_hash
    return HEAD.pack(MAGIC, version, known, len(text), len(blobs), zlib.crc32(text + blobs)) + text + blobs


@pytest.mark.parametrize("version", [FILE_VERSION - 1, FILE_VERSION + 1])
def test_files_of_another_version(version: int) -> None:
    message = (
        f"program must be a file of version {FILE_VERSION}, not {version}, which another release of lutterfly wrote; "
        "compile the model again"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Program.from_bytes(written(b"{}", version=version))


def untouched() -> bytes:
    """The program's file with a placed tensor that no command touches."""
    plain, blobs = parts()
    plain = copy.deepcopy(plain)
    plain["cores"][0]["outline"]["placed"][0] |= {"dma": [], "written": [], "read": []}
    return written(json.dumps(plain).encode(), blobs)


def changed(*path: str | int, value: object) -> bytes:
    """The program's file with another value in one place; without it if the value is `...`."""
    plain, blobs = parts()
    plain = copy.deepcopy(plain)
    place = plain
    for key in path[:-1]:
        place = place[key]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return written(json.dumps(plain).encode(), blobs)


def test_round_trip() -> None:
    assert Program.from_bytes(program().to_bytes()) == program()
    plain, blobs = parts()
    assert Program.from_bytes(written(json.dumps(plain).encode(), blobs)) == program()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: written(b""), "Expecting value: line 1 column 1 (char 0)"),
        (lambda: written(b"\xff"), "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (lambda: written(b"[" * 100_000), "JSON must not be nested so deeply"),
        (
            lambda: written(b"[]"),
            (
                "program must be an object with the fields config_hash, config_name, cores, "
                "arena_bytes, body_bytes, constants, constants_address, streamed, streamed_address, inputs, outputs, "
                "predicted_cycles, outline, batch, head, tail, model, not an array"
            ),
        ),
        (lambda: changed("cores", value=[]), "program: cores must be between 1 and 8, not 0"),
        (lambda: changed(*CORE, "body", value=...), "program.cores[0].body must be given, and is missing"),
        (
            lambda: changed(*CORE, "body", "dma", "commands", value=...),
            "program.cores[0].body.dma.commands must be given, and is missing",
        ),
        (
            lambda: changed(*CORE, "body", "speed", value=1),
            ('program.cores[0].body must have no fields but dma, compute, and has "speed"'),
        ),
        (lambda: changed(*CORE, "layers", value=3), "program.cores[0].layers must be an array, not 3"),
        (
            lambda: changed(*CORE, "layers", 0, "macs", value="many"),
            'program.cores[0].layers[0].macs must be an integer, not "many"',
        ),
        (
            lambda: changed(*CORE, "layers", 0, "macs", value=1.5),
            "program.cores[0].layers[0].macs must be an integer, not 1.5",
        ),
        (lambda: changed("inputs", 0, "unsigned", value=0), "program.inputs[0].unsigned must be true or false, not 0"),
        (
            lambda: changed("inputs", 0, "shape", value=[6, 6]),
            ("program.inputs[0].shape must be an array of 3 values, not of 2"),
        ),
        (
            lambda: changed(*CORE, "body", "dma", "commands", value={"blob": [0, 1 << 40]}),
            r"program.cores[0].body.dma.commands must be within the \d+ bytes of binary data, not \d+ bytes at 0",
        ),
        (
            lambda: changed(*CORE, "body", "dma", "commands", value={"blob": [-1, 1]}),
            r"program.cores[0].body.dma.commands must be within the \d+ bytes of binary data, not 1 bytes at -1",
        ),
        (
            lambda: changed(*CORE, "body", "dma", "commands", value="AAAA"),
            "program.cores[0].body.dma.commands.blob must be an array, not null",
        ),
        (
            lambda: changed(*CORE, "body", "dma", "commands", value={"blob": [0, 63]}),
            ("program: body.dma.commands must be whole commands of 64 bytes, not 63 bytes"),
        ),
        (
            lambda: changed(*CORE, "body", "dma", "address", value=1),
            "program: body.dma.address must be a multiple of 64, not 1",
        ),
        (
            lambda: changed(*CORE, "body", "dma", "address", value=1 << 30),
            r"program: body.dma must be in the first \d+ bytes of the arena, not \d+ bytes at 1073741824",
        ),
        (
            lambda: changed("constants_address", value=-1),
            r"program: constants must be in the first \d+ bytes of the arena, not \d+ bytes at -1",
        ),
        (
            lambda: changed("arena_bytes", value=1 << 33),
            ("program: arena_bytes must be between 1 and 4294967296, not 8589934592"),
        ),
        (
            lambda: changed("predicted_cycles", value=0),
            ("program: predicted_cycles must be between 1 and 4294967295, not 0"),
        ),
        (lambda: changed("batch", value=0), r"program: batch must be between 1 and \d+, not 0"),
        (lambda: changed("inputs", value=[]), "program: inputs must be one or more, with different names, not none"),
        (
            lambda: changed("inputs", value=2 * parts()[0]["inputs"]),
            "program: inputs must be one or more, with different names, not x, x",
        ),
        (
            lambda: changed("inputs", 0, "onnx_axes", value=[0, 0, 2]),
            "program: x: onnx_axes must be 0, 1 and 2 in some order, not (0, 0, 2)",
        ),
        (
            lambda: changed("inputs", 0, "onnx_shape", value=[1, 4, 6, 7]),
            (
                "program: x: onnx_shape must be one of 144 elements whose first axis is a multiple of the batch (1), "
                "not (1, 4, 6, 7)"
            ),
        ),
        (
            lambda: changed("inputs", 0, "shape", value=[-6, -6, 4]),
            "program: x: shape must be positive in all axes, not (-6, -6, 4)",
        ),
        (
            lambda: changed("inputs", 0, "addresses", value=[1 << 40]),
            rf"program: x must be in the first \d+ bytes of the arena, not 144 bytes at {1 << 40}",
        ),
        (
            lambda: changed(*CORE, "layers", 0, "commands", value=[]),
            r"program: \w+: commands must be some of the \d+ in the compute queue, not ()",
        ),
        (
            lambda: changed(*CORE, "layers", 0, "words", value=1 << 20),
            rf"program: \w+: words must be between 1 and \d+, not {1 << 20}",
        ),
        (
            lambda: changed(*CORE, "written", 0, "command", value=99),
            r"program: \w+: commands must be some of the \d+ in the compute queue, not (99,)",
        ),
        (
            lambda: changed(*CORE, "written", 0, "order", value=[0, 1, 1, 3]),
            r"program: \w+: order must name each of at least \d+ channels once, or none, not (0, 1, 1, 3)",
        ),
        (
            lambda: changed(*CORE, "written", 0, "row_pitch", value=1 << 30),
            r"program: \w+: row_pitch must be between 0 and 16777216, not 1073741824",
        ),
        (
            lambda: changed(*CORE, "layers", 0, "feature_bytes", value=-1),
            rf"program: \w+: feature_bytes must be between 0 and {(1 << 63) - 1}, not -1",
        ),
        (
            lambda: changed(*CORE, "outline", "dma", "begins", value=[]),
            r"program: outline.dma.begins must be \d+, one for each command, not 0",
        ),
        (
            lambda: changed(*CORE, "outline", "compute", "layers", 0, value=99),
            r"program: outline.compute.layers must be from -1 to \d+, not 99",
        ),
        (
            lambda: changed(*CORE, "outline", "compute", "waits_for", 0, value=999),
            r"program: outline.compute.waits_for must be from -1 to \d+, not 999",
        ),
        (
            lambda: changed(*CORE, "outline", "compute", "ends", 0, value=-1),
            rf"program: outline.compute: cycles must be from 0 to {(1 << 63) - 2}, not -1",
        ),
        (
            lambda: changed(*CORE, "outline", "blocks", 0, "layers", value=[-1]),
            r"program: outline.blocks: layers must be from 0 to \d+, not -1",
        ),
        (
            lambda: changed(*CORE, "outline", "blocks", 0, "size_bytes", value=-5),
            rf"program: outline.blocks: bytes must be from 0 to {(1 << 63) - 2}, not -5",
        ),
        (
            lambda: changed(*CORE, "outline", "placed", 0, "dma", value=[999]),
            r"program: outline.placed: \w+: dma must be from 0 to \d+, not 999",
        ),
        (
            lambda: changed(*CORE, "outline", "placed", 0, "read", value=[999]),
            r"program: outline.placed: \w+: compute must be from 0 to \d+, not 999",
        ),
        (
            lambda: changed("outline", "tried", 0, "predicted_cycles", value=-1),
            r"program: outline.tried: cycles must be from 0 to \d+, not -1",
        ),
        (
            lambda: changed(*CORE, "outline", "blocks", 0, "tables", value={"blob": [0, 1]}),
            r"program: outline.blocks: tables must be \d+ bytes, not 1",
        ),
        (
            untouched,
            r"program: outline.placed: \w+ must have commands that touch it, and has none",
        ),
        (
            lambda: changed("outline", "rows", 0, "layers", value=[99]),
            r"program: outline.rows: layer of \w+ must be from -1 to \d+, not 99",
        ),
        (
            lambda: changed("outline", "rows", 0, "where", value="moon"),
            r"program: outline.rows: where of \w+ must be accelerator or host, not moon",
        ),
        (lambda: changed("config_hash", value=7), r"program.config_hash must be the header's (\d+), not 7"),
    ],
)
def test_files_of_another_content(make: Callable[[], bytes], message: str) -> None:
    pattern = re.escape(message).replace(r"\\d\+", r"\d+").replace(r"\\w\+", r"\w+")
    with pytest.raises(ValueError, match=f"^{pattern}; the file is damaged: compile again$"):
        Program.from_bytes(make())


def test_a_hash_that_the_header_cannot_hold() -> None:
    with pytest.raises(ValueError, match=rf"^config_hash must be between 0 and {(1 << 32) - 1}, not {1 << 32}$"):
        dataclasses.replace(program(), config_hash=1 << 32)


def test_a_spilled_tensor_beyond_the_arena() -> None:
    core = dataclasses.replace(program().cores[0], spilled=(SpilledTensor("t", 1 << 30, (1, 2, 3)),))
    with pytest.raises(ValueError, match=r"^t must be in the first \d+ bytes of the arena, not 6 bytes at 1073741824$"):
        dataclasses.replace(program(), cores=(core,))


@functools.cache
def digits_program() -> Program:
    """With a head and a tail."""
    return compile_model(digits.model_path("qdq").read_bytes(), PRESETS["tiny"])


def refusal(program: Program, path: Path, capsys: pytest.CaptureFixture[str], command: str = "compile") -> str:
    """The message about a file with this program, without the file's name."""
    path.write_bytes(program.to_bytes())
    words = {"compile": ["-o", f"{path}.again"], "run": ["--input", "x.npy"], "verify": ["--samples", "1"]}[command]
    assert main([command, str(path), *words, "--config", "tiny", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error.startswith(f"{path}: ")
    assert error.endswith("; the file is damaged: compile again")
    return error.removeprefix(f"{path}: ").removesuffix("; the file is damaged: compile again")


@pytest.mark.sampled(12)
@pytest.mark.parametrize("command", ["compile", "run", "verify"])
@pytest.mark.parametrize("part", ["model", "head", "tail"])
@pytest.mark.parametrize(
    "damage", [lambda data: b"junk", lambda data: data[: len(data) // 2], lambda data: b"\x08junk"]
)
def test_models_in_a_program_that_are_none(
    part: str, damage: Callable[[bytes], bytes], command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = digits_program()
    damaged = dataclasses.replace(whole, **{part: damage(getattr(whole, part))})
    message = refusal(damaged, tmp_path / "net.program", capsys, command)
    assert message.startswith("program must hold models that ONNX Runtime runs, and does not: ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda whole: {"head": b""},
            ("program: the accelerator needs pixels_QuantizeLinear_Output, and there is only pixels"),
        ),
        (
            lambda whole: {"tail": b""},
            (
                "program: the user needs logits, and there is only pixels, "
                "pixels_QuantizeLinear_Output, logits_QuantizeLinear_Output"
            ),
        ),
        (
            lambda whole: {"head": whole.tail},
            ("program: the head needs logits_QuantizeLinear_Output, and there is only pixels"),
        ),
        (
            lambda whole: {"inputs": (dataclasses.replace(whole.inputs[0], unsigned=True),)},
            "program: pixels_QuantizeLinear_Output must be uint8[1, 1, 8, 8] for a sample, not int8[1, 1, 8, 8]",
        ),
        (
            lambda whole: {"inputs": (dataclasses.replace(whole.inputs[0], onnx_shape=(1, 64)),)},
            "program: pixels_QuantizeLinear_Output must be int8[1, 64] for a sample, not int8[1, 1, 8, 8]",
        ),
    ],
)
def test_parts_that_do_not_fit_one_another(
    change: Callable[[Program], dict], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = dataclasses.replace(digits_program(), **change(digits_program()))
    assert refusal(damaged, tmp_path / "net.program", capsys) == message


@pytest.mark.regress
def test_tensors_that_the_model_has_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, *others = digits_program().cores[0].written
    for change, message in (
        ({"name": "zz"}, "zz must be in the model, and is not"),
        ({"shape": (1, 1, 1)}, f"{first.name} must be int8[8, 8, 16], not int8[1, 1, 1]"),
        ({"bits": 1}, f"{first.name} must be int8[8, 8, 16], not binary[8, 8, 16]"),
    ):
        written = (dataclasses.replace(first, **change), *others)
        core = dataclasses.replace(digits_program().cores[0], written=written)
        damaged = dataclasses.replace(digits_program(), cores=(core,))
        assert refusal(damaged, tmp_path / "net.program", capsys, "verify") == message


def places(plain: Any, *path: str | int) -> list[tuple[str | int, ...]]:
    """Every place of the JSON, containers included."""
    inner = plain.items() if isinstance(plain, dict) else enumerate(plain) if isinstance(plain, list) else ()
    return [found for key, value in inner for found in ((*path, key), *places(value, *path, key))]


VALUES = st.one_of(
    st.just(...),
    st.none(),
    st.booleans(),
    st.floats(),
    st.text(max_size=3),
    st.integers(-2, 70),
    st.sampled_from([1 << power for power in range(7, 80)]),
    st.lists(st.integers(-2, 70), max_size=4),
    st.dictionaries(st.sampled_from(["blob", "name", "x"]), st.lists(st.integers(-2, 200), max_size=3), max_size=2),
)


@pytest.mark.regress
@settings(derandomize=True, max_examples=200)
@given(data=st.data())
def test_any_value_anywhere_is_a_program_or_refused(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(places(parts()[0])))
    try:
        found = Program.from_bytes(changed(*path, value=data.draw(VALUES)))
    except ValueError:
        return
    assert Program.from_bytes(found.to_bytes()) == found


@settings(derandomize=True, max_examples=100)
@given(data=st.binary(max_size=60), place=st.integers(0, 10**6), fresh=st.booleans())
def test_any_bytes_are_refused(data: bytes, place: int, fresh: bool) -> None:
    """Bytes in place of others, with the checksum of before, and any bytes after the magic number."""
    file = bytearray(program().to_bytes())
    start = place % len(file)
    file[start : start + len(data)] = data
    damaged = MAGIC + data if fresh else bytes(file)
    if damaged == program().to_bytes():
        return
    with pytest.raises(ValueError, match=r"^program [^\n]+$"):
        Program.from_bytes(damaged)
