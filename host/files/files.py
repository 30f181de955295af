"""Files of users, which are read as a whole, and files that are written atomically."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import shutil
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy


def read_file(path: str | Path) -> bytes:
    """Read the bytes of a file or a pipe.

    Raises
    ------
    ValueError
        If it cannot be read, or is a device, which may never end; the message names it.
    """
    try:
        if Path(path).is_char_device() or Path(path).is_block_device():
            raise ValueError(f"{path}: must be a file that can be read: it is a device")
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: must be a file that can be read: {error.strerror}") from error


# Atomic writing of files.

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file atomically: when the disk is full, or this process ends, the old file stays.

    A device or a pipe is written directly.

    Raises
    ------
    ValueError
        If it cannot be written; the message names the file and the remedy.
    """
    with explained(path):
        target = _target(path)
        if target.exists() and not target.is_file():
            target.write_bytes(data)
            return
        with _temporary(target) as temporary:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                # Some file systems notice only now that they are full; and the data must be on disk before the new
                # name.
                os.fsync(file.fileno())
            temporary.replace(target)


def check_writable(path: Path) -> None:
    """Raise the error that :func:`write_whole` would raise, except that of a full disk; change nothing."""
    with explained(path):
        target = _target(path)
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if target.is_file() or not target.exists():
            with _temporary(target):
                pass


def _target(path: Path) -> Path:
    """Return the target of links, so that a link is not replaced by a file."""
    try:
        return path.resolve()
    except RuntimeError:
        # Python before 3.13 raises this for links in a circle.
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None


@contextlib.contextmanager
def _temporary(target: Path) -> Iterator[Path]:
    """Create a file beside ``target`` with its permissions, which is removed at the end if it still exists."""
    is_new = not target.exists()
    if not is_new and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    temporary = target.with_name(f".lutterfly-{secrets.token_hex(8)}")
    temporary.touch(exist_ok=False)
    try:
        if not is_new:
            shutil.copymode(target, temporary)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Convert an OSError of writing to a message with place, cause and remedy.

    Raises
    ------
    ValueError
        For an OSError.
    """
    try:
        yield
    except OSError as error:
        remedy = "make room there, or name another place" if error.errno in _NO_ROOM else "name another place"
        raise ValueError(f"{path}: cannot be written: {error.strerror}; {remedy}") from error


# Atomic writing of folders.


def check_folder(path: Path, names: Collection[str]) -> None:
    """Raise the error that :func:`write_folder` would raise, except that of a full disk; change nothing.

    Raises
    ------
    ValueError
        If the folder cannot be made, or contains anything but files of these names.
    """
    with explained(path):
        target = path.resolve()
        if target.exists():
            if not target.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            others = sorted(entry.name for entry in target.iterdir() if entry.name not in names or entry.is_dir())
            if others:
                raise ValueError(
                    f"{path}: must hold nothing but what an earlier export wrote, not {', '.join(others[:3])}; "
                    "name another place, or remove it"
                )
        _temporary_folder(target).rmdir()


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder of files atomically: if it fails, the old folder stays.

    Raises
    ------
    ValueError
        If it cannot be written, or contains other files; the message names the folder and the remedy.
    """
    check_folder(path, files)
    with explained(path):
        target = path.resolve()
        temporary = _temporary_folder(target)
        old = temporary.with_name(f"{temporary.name}-old")
        try:
            for name, data in files.items():
                with (temporary / name).open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            if target.exists():
                target.rename(old)
            temporary.rename(target)
        finally:
            # The old folder is restored if the new one is not in place.
            if old.exists() and not target.exists():
                old.rename(target)
            for leftover in (temporary, old):
                shutil.rmtree(leftover, ignore_errors=True)


def _temporary_folder(target: Path) -> Path:
    """Create a folder beside ``target``."""
    temporary = target.with_name(f".lutterfly-{secrets.token_hex(8)}")
    temporary.mkdir()
    return temporary


# NumPy files of users: a header is checked against the size of the file.

#: Exceptions of NumPy on a damaged header, which it parses as Python.
_HEADER_ERRORS = (ValueError, TypeError, EOFError, OverflowError, RecursionError, MemoryError, tokenize.TokenError)
#: Exceptions of a damaged or encrypted archive.
_ARCHIVE_ERRORS = (ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def load_array(path: str | Path) -> np.ndarray:
    """Load the array of a file that ``numpy.save`` wrote.

    Raises
    ------
    ValueError
        If the file cannot be read, is not such a file, or is shorter than its header demands; nothing is allocated.
    """
    data = read_file(path)
    if data.startswith(b"PK"):
        raise ValueError(f"{path}: must be a NumPy file with one array (.npy), not an archive")
    try:
        return _parse(data)
    except ValueError as error:
        raise ValueError(f"{path}: must be a NumPy file (.npy): {error}") from error


def load_archive(path: Path) -> dict[str, np.ndarray]:
    """Load the arrays, by name, of a file that ``numpy.savez`` wrote.

    Raises
    ------
    ValueError
        As :func:`load_array`.
    """
    data = read_file(path)
    message = f"{path}: must be a NumPy archive (.npz) with an array for each input, as numpy.savez writes it"
    if data.startswith(npy.MAGIC_PREFIX):
        raise ValueError(f"{message}, not one array")
    arrays = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.namelist():
                name = member.removesuffix(".npy")
                if name in arrays:
                    raise ValueError(f"{name} stands twice in it")
                arrays[name] = _parse(archive.read(member))
    except _ARCHIVE_ERRORS as error:
        raise ValueError(f"{message}: {error}") from error
    return arrays


def _parse(data: bytes) -> np.ndarray:
    stream = io.BytesIO(data)
    shape, dtype = _header(stream)
    # Python's integers are used, as NumPy's would overflow.
    promised, present = dtype.itemsize, len(data) - stream.tell()
    for size in shape:
        promised *= size
    if promised != present:
        raise ValueError(f"its header promises {promised:,} bytes of {dtype}{list(shape)}, and {present:,} follow")
    stream.seek(0)
    return npy.read_array(stream, allow_pickle=False)


def _header(stream: BinaryIO) -> tuple[tuple[int, ...], np.dtype]:
    try:
        version = npy.read_magic(stream)
        if version not in _READERS:
            raise ValueError(f"its format must be 1.0 or 2.0, not {'.'.join(map(str, version))}")
        with warnings.catch_warnings():
            # Warnings of a header by Python 2, and of escapes in its texts.
            warnings.simplefilter("ignore")
            shape, _, dtype = _READERS[version](stream)
    except _HEADER_ERRORS as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(first) from error
    if dtype.hasobject or dtype.itemsize == 0 or any(type(size) is not int or size < 0 for size in shape):
        raise ValueError(f"it must hold numbers in an array, not {dtype}{list(shape)}")
    return shape, dtype
