"""Files are written whole or not at all."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import numpy as np
import pytest

from cocotb_tests.support.oracles.lifetimes import small_disk
from lutterfly.examples import digits
from lutterfly.host.command import main
from lutterfly.host.files.files import check_writable, write_whole

MODEL = str(digits.model_path("qop"))


@pytest.fixture
def small_files():
    """The system lets nobody write more than 10,000 bytes into a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_is_written_or_replaced(tmp_path: Path) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    old.write_bytes(b"before")
    old.chmod(0o640)
    for path in (new, old):
        check_writable(path)
        write_whole(path, b"after")
        assert path.read_bytes() == b"after"
    (tmp_path / "ordinary").touch()
    assert new.stat().st_mode == (tmp_path / "ordinary").stat().st_mode
    assert old.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old", "ordinary"]


def test_who_reads_the_old_file_reads_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with path.open("rb") as reader:
        write_whole(path, b"after")
        assert reader.read() == b"before"


def test_a_check_changes_nothing(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_bytes(b"before")
    for path in (tmp_path / "new", old, Path("/dev/null")):
        check_writable(path)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert old.read_bytes() == b"before"


def test_a_link_stays_one(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"before")
    link.symlink_to(target)
    write_whole(link, b"after")
    assert link.is_symlink()
    assert target.read_bytes() == b"after"


def test_a_pipe_is_written_as_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    check_writable(pipe)
    write_whole(pipe, b"bytes")
    assert os.read(reader, 100) == b"bytes"
    os.close(reader)


@pytest.mark.usefixtures("small_files")
def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_bytes(b"before")
    for path in (old, tmp_path / "new"):
        with pytest.raises(ValueError, match=rf"^{path}: cannot be written: File too large; name another place$"):
            write_whole(path, bytes(20_000))
    assert old.read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("nowhere/file", "No such file or directory"),
        (".", "Is a directory"),
        ("file/below", "Not a directory"),
        ("circle", "Too many levels of symbolic links"),
    ],
)
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, place: str, reason: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    path = tmp_path / place
    for write in (check_writable, lambda path: write_whole(path, b"")):
        with pytest.raises(ValueError, match=rf"^{path}: cannot be written: {reason}; name another place$"):
            write(path)


def test_a_full_device_is_named() -> None:
    with pytest.raises(ValueError, match=r"^/dev/full: cannot be written: No space left on device; make room"):
        write_whole(Path("/dev/full"), b"bytes")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "words",
    [
        ["compile", MODEL, "-o"],
        ["verilog", "-o"],
        ["run", MODEL, "--input", "pixels.npy", "-o"],
        ["run", MODEL, "--input", "pixels.npy", "--report"],
    ],
    ids=lambda words: words[0] + words[-1],
)
def test_commands_on_a_full_disk_leave_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("pixels.npy", digits.images()[:1])
    with small_disk(tmp_path / "disk", 1 << 16) as disk:
        old = disk / "old.html"
        old.write_bytes(bytes(1 << 16))
        assert main.main([*words, str(old), "--config", "tiny"]) == 2
        assert f"{old}: cannot be written: No space left on device; make room there, or" in capsys.readouterr().err
        assert old.read_bytes() == bytes(1 << 16)
        assert [path.name for path in disk.iterdir()] == ["old.html"]
