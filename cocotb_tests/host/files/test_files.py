"""Files: written whole or not at all, and users' NumPy files read or refused before anything is allocated."""

from __future__ import annotations

import io
import os
import re
import resource
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cocotb_tests.support.oracles.lifetimes import small_disk
from lutterfly.examples import digits
from lutterfly.host.command import main
from lutterfly.host.files.files import check_writable, load_archive, load_array, write_whole

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


# NumPy files from users: what numpy.save writes is read, everything else is refused before anything is allocated.

SEEDED = settings(derandomize=True, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


def header(text: str, version: bytes = b"\x01\x00") -> bytes:
    """The beginning of a file, with any text for its header."""
    padded = text.encode("latin1") + b"\n"
    return b"\x93NUMPY" + version + len(padded).to_bytes(2 if version == b"\x01\x00" else 4, "little") + padded


def described(shape: object, descr: object = "<f4") -> str:
    return repr({"descr": descr, "fortran_order": False, "shape": shape})


def saved(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def refused(path: Path) -> str:
    """The message about a file that is refused, without its beginning; reading it takes next to no memory."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=re.escape(f"{path}: must be a NumPy ")) as caught:
            (load_archive if path.suffix == ".npz" else load_array)(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20
    return str(caught.value).partition(": must be a NumPy ")[2]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32", ">f8", "bool", "float16"])
@pytest.mark.parametrize("shape", [(), (0, 3), (3,), (2, 3, 4)])
def test_what_numpy_writes_is_read(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    for order in (array, np.asfortranarray(array)):
        np.save(tmp_path / "x.npy", order)
        np.testing.assert_array_equal(load_array(tmp_path / "x.npy"), order, strict=True)
    for write in (np.savez, np.savez_compressed):
        write(tmp_path / "x.npz", x=array, other=array)
        found = load_archive(tmp_path / "x.npz")
        assert found.keys() == {"x", "other"}
        np.testing.assert_array_equal(found["x"], array, strict=True)


@pytest.mark.parametrize("version", [b"\x01\x00", b"\x02\x00"])
def test_both_formats_are_read(version: bytes, tmp_path: Path) -> None:
    array = np.arange(6, dtype="<f4").reshape(2, 3)
    (tmp_path / "x.npy").write_bytes(header(described((2, 3)), version) + array.tobytes())
    np.testing.assert_array_equal(load_array(tmp_path / "x.npy"), array, strict=True)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", r"EOF: reading magic string, expected 8 bytes got 0"),
        (b"no array", r"the magic string is not correct; .*"),
        (saved(np.zeros(3))[:-1], r"its header promises 24 bytes of float64\[3\], and 23 follow"),
        (saved(np.zeros(3)) + b"x", r"its header promises 24 bytes of float64\[3\], and 25 follow"),
        (header(described((10**12, 1, 8, 8))), r"its header promises 256,000,000,000,000 bytes of .*, and 0 follow"),
        (header(described((1 << 32, 1 << 32))), r"its header promises 73,786,976,294,838,206,464 bytes .* 0 follow"),
        (header(described((1 << 200,))), r"its header promises .*, and 0 follow"),
        (header(described((-1, 3))), r"it must hold numbers in an array, not float32\[-1, 3\]"),
        (header(described((True,))) + bytes(4), r"it must hold numbers in an array, not float32\[True\]"),
        (header(described((2.0,))), r"shape is not valid: \(2\.0,\)"),
        (header(described((2,), "|O")), r"it must hold numbers in an array, not object\[2\]"),
        (header(described((2,), "<q99")), r"descr is not a valid dtype descriptor: '<q99'"),
        (header(described((2,), [])), r"it must hold numbers .*"),
        (header("-" * 9000 + "1"), r".+"),
        (header("(" * 9000), r".+"),
        (header("{" * 20_000), r"Header info length .*"),
        (header("'"), r".+"),
        (header("[]"), r"Header is not a dictionary: .*"),
        (header(described((2,)), b"\x09\x00"), r"its format must be 1\.0 or 2\.0, not 9\.0"),
        (header(described((2,)), b"\x02\x00")[:20], r"EOF: .*"),
    ],
)
def test_refuses(data: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(data)
    message = refused(tmp_path / "x.npy")
    assert re.fullmatch(rf"file \(\.npy\): {reason}", message), message
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("image.npy", data)
    message = refused(tmp_path / "x.npz")
    assert re.fullmatch(rf"archive \(\.npz\) with .* as numpy\.savez writes it: {reason}", message), message


def test_refuses_archives(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", image=np.zeros(3))
    assert refused_as_array(tmp_path / "x.npz").endswith(": must be a NumPy file with one array (.npy), not an archive")
    data = bytearray((tmp_path / "x.npz").read_bytes())
    # Says of itself that it is encrypted, in both of its headers.
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "x.npz").write_bytes(data)
    assert "is encrypted" in refused(tmp_path / "x.npz")
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("image.npy", saved(np.zeros(3)))
        archive.writestr("image", saved(np.ones(3)))
    assert refused(tmp_path / "x.npz").endswith("image stands twice in it")


def refused_as_array(path: Path) -> str:
    with pytest.raises(ValueError, match="must be a NumPy file") as caught:
        load_array(path)
    return str(caught.value)


@SEEDED
@given(
    text=st.text(st.characters(max_codepoint=255), max_size=200)
    | st.tuples(
        st.one_of(st.integers(-3, 3), st.integers(), st.booleans(), st.none(), st.floats())
        | st.lists(st.integers(-1, 1 << 70), max_size=4).map(tuple),
        st.sampled_from(["<f4", "|i1", "|O", "<U3", "|V0", "<M8[s]", "f4, f4", 3, None, ("<f4", (2,)), [("a", "<f4")]]),
    ).map(lambda pair: described(*pair)),
    data=st.binary(max_size=20),
)
def test_any_header_is_read_or_refused(text: str, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(header(text) + data)
    try:
        array = load_array(path)
    except ValueError:
        refused(path)
        return
    assert array.nbytes == len(data)


@SEEDED
@given(data=st.binary(max_size=40), place=st.integers(0, 10**6))
def test_any_damage_is_read_or_refused(data: bytes, place: int, tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "x.npz", image=np.arange(40.0))
    np.save(tmp_path / "x.npy", np.arange(40.0))
    for path, load in ((tmp_path / "x.npy", load_array), (tmp_path / "x.npz", load_archive)):
        file = bytearray(path.read_bytes())
        start = place % len(file)
        file[start : start + len(data)] = data
        path.write_bytes(file)
        try:
            load(path)
        except ValueError as error:
            assert str(error).startswith(f"{path}: must be a NumPy ")  # noqa: PT017 - both ends are right
