"""A cache of results that take long to build: one folder per key, shared safely by processes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

#: Seconds without use after which entries are removed when a new one is built.
KEEP_SECONDS = 30 * 24 * 3600
#: The end of a remedy, for files that cannot be written.
ELSEWHERE = "name another folder in XDG_CACHE_HOME"

#: Lists the files of an entry with their digests; written last.
_MANIFEST = "manifest"
#: Part of the name of a folder in which an entry is being built.
PARTIAL = ".partial-"
#: Seconds longer than any build: each of its steps has a bound, see :func:`lutterfly.host.simulation.toolchain.run`.
_LOCK_SECONDS, _POLL_SECONDS = 4 * 3600, 0.1
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENOLCK)


class CacheError(OSError):
    """The cache cannot be written; the message names the place and the remedy."""


def default_root() -> Path:
    """Return the cache folder of this user: ``$XDG_CACHE_HOME/lutterfly``, by default ``~/.cache/lutterfly``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lutterfly"


def key_of(parts: Iterable[str | bytes]) -> str:
    """Return a key that differs if any of ``parts`` does, or their boundaries do."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:24]


def entry(root: Path, key: str, build: Callable[[Path], None]) -> Path:
    """Return the folder of ``key``, which is built first if it is missing or damaged.

    A folder becomes visible only when it is complete (it is built under another name), and if several processes want
    the same one, one builds and the others wait.

    Parameters
    ----------
    root : Path
        The cache folder.
    key : str
        The result of :func:`key_of`.
    build : callable
        Fills an empty folder; if it raises, nothing is kept.

    Raises
    ------
    CacheError
        If the disk is full, or writing is not permitted; also if another process builds the same and does not end.
    """
    target = root / key
    if not is_whole(target):
        with explained(root):
            root.mkdir(parents=True, exist_ok=True)
            with locked(root / f"{key}.lock"):
                if not is_whole(target):
                    _remove_old(root, key)
                    _remove(target)
                    _build(root, key, build)
    # A read-only cache can still be read.
    with contextlib.suppress(OSError):
        os.utime(target)
    return target


def is_whole(folder: Path) -> bool:
    """Return whether ``folder`` is an entry whose files are unchanged."""
    try:
        *lines, last = (folder / _MANIFEST).read_text().splitlines()
        return last == key_of(lines) and all(line == _line(folder, line.partition(" ")[2]) for line in lines)
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock; the system releases it even if the process dies.

    Raises
    ------
    CacheError
        If another process does not release it within four hours.
    """
    with path.open("w") as file:
        limit = time.monotonic() + _LOCK_SECONDS
        while not _take(file.fileno()):
            if time.monotonic() > limit:
                raise CacheError(
                    f"{path}: must be released within {_LOCK_SECONDS} s by the process that holds it, and is not; "
                    "end that process"
                )
            time.sleep(_POLL_SECONDS)
        yield


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _build(root: Path, key: str, build: Callable[[Path], None]) -> None:
    partial = Path(tempfile.mkdtemp(prefix=f"{key}{PARTIAL}", dir=root))
    try:
        build(partial)
        names = sorted(str(path.relative_to(partial)) for path in partial.rglob("*") if path.is_file())
        lines = [_line(partial, name) for name in names]
        (partial / _MANIFEST).write_text("\n".join([*lines, key_of(lines)]))
        partial.rename(root / key)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _line(folder: Path, name: str) -> str:
    """Return a file's line of the manifest: its digest and its name."""
    with (folder / name).open("rb") as file:
        return f"{hashlib.file_digest(file, 'sha256').hexdigest()} {name}"


@contextlib.contextmanager
def explained(root: Path) -> Iterator[None]:
    """Convert errors of writing to messages with place and remedy."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise CacheError(f"{root}: no room is left for what is built; make room there, or {ELSEWHERE}") from error
        if error.errno in _REFUSED:
            raise CacheError(
                f"{error.filename or root}: must be a place that can be written: {error.strerror}; permit it, "
                f"or {ELSEWHERE}"
            ) from error
        raise


def _remove(target: Path) -> None:
    """Remove an entry that is damaged; files that are open stay readable."""
    if target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)


def _remove_old(root: Path, key: str) -> None:
    """Remove entries that were not used for long, and remains of builds that were killed.

    The caller holds the lock of ``key``.
    """
    # Lock files stay: removing one for which another process waits would let two processes in.
    limit = time.time() - KEEP_SECONDS
    for path in root.iterdir():
        owner, is_partial, _ = path.name.partition(PARTIAL)
        # In a shared folder some entries belong to other users.
        with contextlib.suppress(OSError):
            if not path.is_dir():
                continue
            if is_partial:
                _remove_partial(path, root / f"{owner}.lock", is_ours=owner == key)
            elif path.stat().st_mtime < limit:
                shutil.rmtree(path, ignore_errors=True)


def _remove_partial(path: Path, lock: Path, *, is_ours: bool) -> None:
    """Remove a folder in which nothing is built any more: a build holds the lock."""
    with lock.open("w") as file:
        if is_ours or _take(file.fileno()):
            shutil.rmtree(path, ignore_errors=True)
