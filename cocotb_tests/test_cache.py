"""The cache: built once, shared, complete or absent."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from lutterfly.host import cache


def slow_build(folder: Path) -> None:
    """Leave a trace of every build; a reader in between would see one file only."""
    (folder / "first").write_text(str(os.getpid()))
    time.sleep(0.3)
    (folder / "second").write_text(str(os.getpid()))


def reader(root: Path, results: multiprocessing.Queue) -> None:
    """Take the entry as soon as it is there."""
    folder = cache.entry(root, "key", slow_build)
    results.put(((folder / "first").read_text(), (folder / "second").read_text()))


def test_processes_that_want_the_same_build_it_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue = context.Queue()
    processes = [context.Process(target=reader, args=(tmp_path, results)) for _ in range(4)]
    for process in processes:
        process.start()
    found = {results.get(timeout=30) for _ in processes}
    for process in processes:
        process.join(timeout=30)
    assert len(found) == 1


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("no room")

    with pytest.raises(OSError, match=r"^no room$"):
        cache.entry(tmp_path, "key", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["key.lock"]
    assert (cache.entry(tmp_path, "key", slow_build) / "second").exists()


def test_entries_that_nobody_uses_go_away(tmp_path: Path) -> None:
    old, used = (cache.entry(tmp_path, key, slow_build) for key in ("old", "used"))
    long_ago = time.time() - cache.KEEP_SECONDS - 60
    for folder in (old, used):
        os.utime(folder, (long_ago, long_ago))
    cache.entry(tmp_path, "used", slow_build)
    cache.entry(tmp_path, "new", slow_build)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"used", "new"}


def test_keys_differ_where_parts_do() -> None:
    keys = [cache.key_of(parts) for parts in (["ab", "c"], ["a", "bc"], ["abc"], [b"abc", ""])]
    assert len(set(keys)) == 4
    assert cache.key_of(["abc"]) == cache.key_of([b"abc"])
