"""A cache of things that take long to build: one folder per key, shared safely by processes."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

#: Entries that nobody used for so long are removed when something new is built.
KEEP_SECONDS = 30 * 24 * 3600


def default_root() -> Path:
    """The cache folder of this user: ``$XDG_CACHE_HOME/lutterfly``, by default ``~/.cache/lutterfly``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lutterfly"


def key_of(parts: Iterable[str | bytes]) -> str:
    """A key that differs if any of ``parts`` does; parts are not run together."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:24]


def entry(root: Path, key: str, build: Callable[[Path], None]) -> Path:
    """The folder of ``key``, built first if it is not there.

    A folder becomes visible only when it is complete (it is built under another name), and of several processes that
    want the same one, one builds and the others wait.

    Parameters
    ----------
    root : Path
        The cache folder.
    key : str
        From :func:`key_of`.
    build : callable
        Fills the empty folder that it is given; if it raises, nothing is kept.
    """
    target = root / key
    if not target.is_dir():
        root.mkdir(parents=True, exist_ok=True)
        with _lock(root / f"{key}.lock"):
            if not target.is_dir():
                _remove_old(root)
                partial = Path(tempfile.mkdtemp(prefix=f"{key}.partial-", dir=root))
                try:
                    build(partial)
                    partial.rename(target)
                finally:
                    shutil.rmtree(partial, ignore_errors=True)
    # A read-only cache still serves.
    with contextlib.suppress(OSError):
        os.utime(target)
    return target


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock; the system releases it even if the process dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_old(root: Path) -> None:
    # Lock files stay: removing one that somebody waits for would let two processes in.
    limit = time.time() - KEEP_SECONDS
    for path in root.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if path.is_dir() and path.stat().st_mtime < limit:
                shutil.rmtree(path, ignore_errors=True)
