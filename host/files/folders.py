"""Folders that are written as a whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from .writing import explained


def check_folder(path: Path, names: Collection[str]) -> None:
    """Raise now what :func:`write_folder` would raise, except for want of room; changes nothing.

    Raises
    ------
    ValueError
        If the folder cannot be made, or holds something else than files of these names.
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
        _temporary(target).rmdir()


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder of files, or leave what was there: never is it half written.

    Raises
    ------
    ValueError
        If it cannot be written, or holds something else; names the folder and the remedy.
    """
    check_folder(path, files)
    with explained(path):
        target = path.resolve()
        temporary = _temporary(target)
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
            # What was there comes back, if the new folder has not taken its place.
            if old.exists() and not target.exists():
                old.rename(target)
            for leftover in (temporary, old):
                shutil.rmtree(leftover, ignore_errors=True)


def _temporary(target: Path) -> Path:
    """A new folder beside ``target``."""
    temporary = target.with_name(f".lutterfly-{secrets.token_hex(8)}")
    temporary.mkdir()
    return temporary
