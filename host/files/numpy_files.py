"""NumPy files as users give them: a header is believed only as far as the file has bytes for what it promises."""

from __future__ import annotations

import io
import tokenize
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy

from .reading import read_file

#: What NumPy raises on a header that is none: it reads it as Python.
_HEADER_ERRORS = (ValueError, TypeError, EOFError, OverflowError, RecursionError, MemoryError, tokenize.TokenError)
#: What a damaged or encrypted archive raises.
_ARCHIVE_ERRORS = (ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def load_array(path: str | Path) -> np.ndarray:
    """The array of a file that ``numpy.save`` wrote.

    Raises
    ------
    ValueError
        If the file cannot be read, is none, or is shorter than its header says; nothing has been allocated then.
    """
    data = read_file(path)
    if data.startswith(b"PK"):
        raise ValueError(f"{path}: must be a NumPy file with one array (.npy), not an archive")
    try:
        return _parse(data)
    except ValueError as error:
        raise ValueError(f"{path}: must be a NumPy file (.npy): {error}") from error


def load_archive(path: Path) -> dict[str, np.ndarray]:
    """The arrays, by name, of a file that ``numpy.savez`` wrote.

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
    # In Python's integers: NumPy's would overflow.
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
            # Of a header by Python 2, and of escapes in its texts.
            warnings.simplefilter("ignore")
            shape, _, dtype = _READERS[version](stream)
    except _HEADER_ERRORS as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(first) from error
    if dtype.hasobject or dtype.itemsize == 0 or any(type(size) is not int or size < 0 for size in shape):
        raise ValueError(f"it must hold numbers in an array, not {dtype}{list(shape)}")
    return shape, dtype
