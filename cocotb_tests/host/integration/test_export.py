"""What `lutterfly export` writes: compilers take it, it holds the program's bytes, and nothing is half written."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cocotb_tests.support.transports.c_driver import STRICT, compile_shared
from lutterfly.examples import digits
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.program import Port, Program
from lutterfly.golden.program.stages import Stage, stages
from lutterfly.golden.units import Queue
from lutterfly.host.command import main
from lutterfly.host.driver.driver import cycle_limit
from lutterfly.host.files.files import write_folder
from lutterfly.host.integration import export as c_text
from lutterfly.host.integration.export import DRIVER, EXAMPLE, MAIN, ModelSource, file_names, files, host_lines
from lutterfly.host.model.model import Model
from lutterfly.host.session.loading import load_program

TINY = PRESETS["tiny"]
MODEL = str(digits.model_path("qdq"))
_WORD, _BYTE, _STRING = ctypes.c_uint32, ctypes.c_uint8, ctypes.c_char_p
_WORDS = ctypes.POINTER(_WORD)


class _Block(ctypes.Structure):
    _fields_ = (("address", _WORD), ("bytes", _WORD), ("data", ctypes.POINTER(_BYTE)))


class _Queues(ctypes.Structure):
    _fields_ = tuple((name, _WORD) for name in ("dma_address", "dma_commands", "compute_address", "compute_commands"))


class _Stage(ctypes.Structure):
    _fields_ = (("blocks", ctypes.POINTER(_Block)), ("count", _WORD), ("queues", ctypes.POINTER(_Queues)))


class _Port(ctypes.Structure):
    _fields_ = (
        *(("name", _STRING), ("shape", _WORDS), ("rank", _WORD), ("bytes", _WORD), ("unsigned", _BYTE)),
        *(("bits", _BYTE), ("size", _WORD * 3), ("strides", _WORD * 3), ("addresses", _WORDS), ("count", _WORD)),
    )


class _Model(ctypes.Structure):
    _fields_ = (
        *(("name", _STRING), ("config_name", _STRING), ("config_hash", _WORD), ("cores", _WORD)),
        *(("arena_bytes", _WORD), ("predicted_cycles", _WORD), ("most_cycles", _WORD)),
        *(("stages", ctypes.POINTER(_Stage)), ("stage_count", _WORD)),
        *(("contents", ctypes.POINTER(_Block)), ("content_count", _WORD), ("body", ctypes.POINTER(_Queues))),
        *(("inputs", ctypes.POINTER(_Port)), ("input_count", _WORD)),
        *(("outputs", ctypes.POINTER(_Port)), ("output_count", _WORD)),
    )


def read_back(folder: Path, source: ModelSource) -> tuple[ctypes.CDLL, _Model]:
    """The model as the compiler has it; the library must be kept."""
    library = ctypes.CDLL(str(compile_shared(folder, source)))
    library.shim_model.restype = ctypes.POINTER(_Model)
    return library, library.shim_model().contents


def blocks(found: ctypes.Array, count: int) -> list[tuple[int, bytes]]:
    return [(block.address, bytes(block.data[: block.bytes])) for block in found[:count]]


def queues(found: ctypes.Array, cores: int) -> list[tuple[int, ...]]:
    return [tuple(getattr(one, name) for name, _ in _Queues._fields_) for one in found[:cores]]


def wanted_queues(cores: Iterator) -> list[tuple[int, ...]]:
    return [tuple(value for queue in Queue for value in (core[queue].address, len(core[queue]))) for core in cores]


def assert_port(found: _Port, port: Port) -> None:
    assert (found.name.decode(), found.unsigned, found.bits) == (port.name, port.unsigned, port.bits)
    assert tuple(found.shape[: found.rank]) == port.onnx_shape
    assert tuple(found.size) == port.shape
    assert tuple(found.addresses[: found.count]) == port.addresses


@pytest.mark.sampled(1)
@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("cores", [1, 2])
def test_what_is_compiled_is_the_program(tmp_path: Path, cores: int, share: float) -> None:
    config = dataclasses.replace(TINY, cluster=ClusterConfig(cores))
    program = load_program(MODEL, config)
    room = program.body_bytes + int(share * (program.arena_bytes - program.body_bytes))
    source, wanted = ModelSource("digits", program, room), stages(program, room)
    library, found = read_back(tmp_path, source)
    assert (found.name, found.config_name.decode()) == (b"digits", program.config_name)
    assert (found.config_hash, found.cores, found.predicted_cycles) == (config.hash, cores, program.predicted_cycles)
    assert found.most_cycles == cycle_limit(program)
    assert program.body_bytes <= found.arena_bytes == source.needed_bytes <= room
    assert len(wanted) == found.stage_count
    assert (found.stage_count == 1) == (share == 1)
    for stage, other in zip(wanted, found.stages[: found.stage_count], strict=True):
        assert_stage(stage, other, cores)
    assert blocks(found.contents, found.content_count) == [(at, data) for at, data in program.contents() if data]
    assert queues(found.body, cores) == wanted_queues(core.body for core in program.cores)
    assert (found.input_count, found.output_count) == (len(program.inputs), len(program.outputs))
    for kind in ("inputs", "outputs"):
        for one, port in zip(getattr(found, kind)[:1], getattr(program, kind), strict=True):
            assert_port(one, port)
    assert library is not None


def assert_stage(stage: Stage, found: _Stage, cores: int) -> None:
    assert blocks(found.blocks, found.count) == [(at, data) for at, data in stage.contents if data]
    assert queues(found.queues, cores) == wanted_queues(stage.cores)


@pytest.mark.regress
def test_compilers_take_every_file(tmp_path: Path) -> None:
    source = ModelSource("digits", load_program(MODEL, TINY), 4096, ("a */ note", "with \u00e9 and \x07"))
    for name, data in files(source).items():
        (tmp_path / name).write_bytes(data)
    sources = [name for name in file_names("digits") if name.endswith(".c")]
    for options in (("gcc", "-std=c99", *STRICT), ("g++", "-x", "c++", "-std=c++11", "-Wall", "-Wextra", "-Werror")):
        subprocess.run([*options, "-c", *sources], cwd=tmp_path, check=True)
    freestanding = ("-ffreestanding", "-fno-builtin", "-Os", "-r", "-nostdlib", "-o", "driver.o")
    subprocess.run(["gcc", "-std=c99", *freestanding, *DRIVER[1:], "digits.c"], cwd=tmp_path, check=True)
    found = subprocess.run(["nm", "-u", "driver.o"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert {line.split()[-1] for line in found.splitlines()} <= {"memcpy", "memset", "_GLOBAL_OFFSET_TABLE_"}
    subprocess.run(["gcc", "-std=c99", *STRICT, "-o", "digits", *sources], cwd=tmp_path, check=True)


def test_the_driver_computes_and_allocates_nothing_that_bare_metal_lacks() -> None:
    folder = Path(c_text.__file__).parent
    text = "".join((folder / name).read_text() for name in (*DRIVER, *EXAMPLE, MAIN))
    assert max(map(len, text.splitlines())) <= 120
    for word in ("malloc", "float ", "double", "stdio", "stdlib", "string.h"):
        assert word not in text


def test_the_header_says_what_runs_on_the_host() -> None:
    program = load_program(MODEL, TINY)
    lines = host_lines(Model(program.head), Model(program.tail))
    header = ModelSource("digits", program, 4096, lines).header
    assert "Not in here is what runs on the host in ONNX Runtime. It is yours to do:" in header
    assert "QuantizeLinear(pixels, pixels_scale = 0.003921569, pixels_zero_point = -128) -> pixels_Quant" in header
    assert (
        "DequantizeLinear(logits_QuantizeLinear_Output, logits_scale = 0.03161711, logits_zero_point = -52)" in header
    )
    assert "input 0: int8[1, 1, 8, 8], 64 bytes: pixels_QuantizeLinear_Output" in header
    assert "output 0: int8[1, 10], 10 bytes: logits_QuantizeLinear_Output" in header
    assert "5 stages through 3776 bytes" in header
    assert host_lines(Model(), Model()) == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["Digits", "1st", "int", "main", "inputs", "lutterfly_2", "stage_0", "a-b", ""])
def test_names_that_c_has_are_refused(name: str) -> None:
    with pytest.raises(
        ValueError, match=rf"^name must be a word of small letters, .* not {name}; choose another --name$"
    ):
        ModelSource(name, load_program(MODEL, TINY), 4096)


def test_strings_and_comments_hold_any_text(tmp_path: Path) -> None:
    text = 'a"\\\n*/ ??/ \u00e9\x07%d\x070'
    body = f"int main(void) {{ return fputs({c_text.string(text)}, stdout) < 0; }}"
    (tmp_path / "main.c").write_text(f"{c_text.comment([text, text])}#include <stdio.h>\n{body}\n")
    subprocess.run(["gcc", "-std=c99", "-trigraphs", *STRICT, "-o", "main", "main.c"], cwd=tmp_path, check=True)
    done = subprocess.run(["./main"], cwd=tmp_path, check=True, capture_output=True)
    assert done.stdout.decode() == text


def export(folder: Path, *options: str) -> int:
    return main.main(["export", MODEL, "-o", str(folder), "--config", "tiny", *options])


@pytest.mark.regress
def test_the_command_writes_a_whole_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "firmware"
    assert export(folder, "--arena-bytes", "4096", "--name", "digits", "--json") == 0
    values = json.loads(capsys.readouterr().out)
    program = load_program(MODEL, TINY)
    notes = host_lines(Model(program.head), Model(program.tail))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files(
        ModelSource("digits", program, 4096, notes)
    )
    assert values["files"] == sorted(file_names("digits"))
    assert (values["stages"], values["arena_bytes"], values["config_hash"]) == (5, 3776, TINY.hash)
    assert values["notes"] == notes
    # Again, now for an arena that holds everything.
    assert export(folder, "--name", "digits") == 0
    needed = ModelSource("digits", program, program.arena_bytes).needed_bytes
    assert f"loaded in 1 stage through {needed:,} bytes of the arena" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["firmware"]


def test_the_command_refuses_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "firmware"
    assert export(folder, "--arena-bytes", "1000") == 2
    assert "program must fit the arena of 1000 bytes, not need 2304 bytes for an inference" in capsys.readouterr().err
    assert export(folder, "--name", "int") == 2
    assert "choose another --name" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    folder.mkdir()
    (folder / "thesis.txt").write_text("of years")
    assert export(folder) == 2
    assert "must hold nothing but what an earlier export wrote, not thesis.txt; name" in capsys.readouterr().err
    assert export(folder / "thesis.txt") == 2
    assert "cannot be written: Not a directory; name another place" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]


def test_a_folder_stays_as_it_was_when_there_is_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "firmware"
    write_folder(folder, {"a": b"1", "b": b"2"})

    rename = Path.rename

    def full(path: Path, target: Path) -> Path:
        if target == folder and not path.name.endswith("-old"):
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(ValueError, match=r"firmware: cannot be written: No space left on device; make room there"):
        write_folder(folder, {"a": b"3", "b": b"4"})
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"a": b"1", "b": b"2"}
    assert [path.name for path in tmp_path.iterdir()] == ["firmware"]
    write_folder(folder, {"a": b"3", "b": b"4"})
    assert (folder / "b").read_bytes() == b"4"


def test_the_default_arena_is_the_one_on_the_chip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["export", MODEL, "-o", str(tmp_path / "a"), "--config", "ecp5-25k-on-chip", "--json"]) == 0
    values, config = json.loads(capsys.readouterr().out), PRESETS["ecp5-25k-on-chip"]
    program: Program = load_program(MODEL, config)
    assert values["stages"] == len(stages(program, config.arena.on_chip_bytes))
    assert values["arena_bytes"] <= config.arena.on_chip_bytes
