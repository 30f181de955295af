"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, or leave what was there: when a disk is full, or this process ends, nothing is half written.

    A device or a pipe is written as it is.

    Raises
    ------
    ValueError
        If it cannot be written; names the file and the remedy.
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
                # Some file systems notice only now that they are full; and the new name must not come before its data.
                os.fsync(file.fileno())
            temporary.replace(target)


def check_writable(path: Path) -> None:
    """Raise now what :func:`write_whole` would raise, except for want of room; changes nothing."""
    with explained(path):
        target = _target(path)
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if target.is_file() or not target.exists():
            with _temporary(target):
                pass


def _target(path: Path) -> Path:
    """The file itself: what is written goes through a link, and not in its place."""
    try:
        return path.resolve()
    except RuntimeError:
        # Python before 3.13 says so of links in a circle.
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None


@contextlib.contextmanager
def _temporary(target: Path) -> Iterator[Path]:
    """A new file beside ``target`` with its permissions, removed at the end if it is still there."""
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
    """Say of what cannot be written where it is, why, and what to do.

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
