"""The cache: built once, shared, complete or absent, whatever happens to builders and disks."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cocotb_tests.support.oracles.lifetimes import Presence, small_disk, start_python, wait_until
from lutterfly.examples import digits
from lutterfly.host.command import main
from lutterfly.host.simulation import cache, toolchain
from lutterfly.host.simulation.cache import CacheError

#: Builds an entry with a tool that says in a pipe that it runs, and then takes long.
LONG_BUILD = """
import os, sys
from pathlib import Path
from lutterfly.host.simulation import cache, toolchain
root, pipe = map(Path, sys.argv[1:])
def build(folder):
    (folder / "half").touch()
    command = ["sh", "-c", 'exec >"$0"; echo begun; sleep 600', str(pipe)]
    toolchain.run(command, cwd=folder, env=dict(os.environ), log=folder / "log")
cache.entry(root, "key", build)
"""


def slow_build(folder: Path) -> None:
    """Leave a trace of every build; a reader in between would see one file only."""
    (folder / "first").write_text(str(os.getpid()))
    time.sleep(0.3)
    (folder / "second").write_text(str(os.getpid()))


def build_deep(folder: Path) -> None:
    (folder / "inner").mkdir()
    for name in ("first", "inner/second"):
        (folder / name).write_bytes(os.urandom(1000))


def reader(root: Path, results: multiprocessing.Queue) -> None:
    """Take the entry as soon as it is there."""
    folder = cache.entry(root, "key", slow_build)
    results.put(((folder / "first").read_text(), (folder / "second").read_text()))


def folders(root: Path) -> set[str]:
    return {path.name for path in root.iterdir() if path.is_dir()}


@pytest.mark.parametrize("was_damaged", [False, True])
def test_processes_that_want_the_same_build_it_once(tmp_path: Path, was_damaged: bool) -> None:
    if was_damaged:
        (cache.entry(tmp_path, "key", slow_build) / "second").unlink()
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
    old, used, known = (cache.entry(tmp_path, key, slow_build) for key in ("old", "used", "known"))
    long_ago = time.time() - 30 * 24 * 3600
    for folder, seconds in ((old, long_ago - 60), (used, long_ago - 60), (known, long_ago + 60)):
        os.utime(folder, (seconds, seconds))
    cache.entry(tmp_path, "used", slow_build)
    cache.entry(tmp_path, "new", slow_build)
    assert folders(tmp_path) == {"used", "known", "new"}


def test_keys_differ_where_parts_do() -> None:
    keys = [cache.key_of(parts) for parts in (["ab", "c"], ["a", "bc"], ["abc"], [b"abc", ""])]
    assert len(set(keys)) == 4
    assert cache.key_of(["abc"]) == cache.key_of([b"abc"])


def test_an_entry_that_is_whole_is_not_built_again(tmp_path: Path) -> None:
    folder = cache.entry(tmp_path, "key", build_deep)
    before = (folder / "first").read_bytes()
    (folder / "of somebody else").touch()
    assert (cache.entry(tmp_path, "key", build_deep) / "first").read_bytes() == before


def _change_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["first", "inner/second", "manifest"])
@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        lambda path: os.truncate(path, 0),
        lambda path: os.truncate(path, path.stat().st_size - 1),
        lambda path: path.write_bytes(os.urandom(300)),
        lambda path: (path.unlink(), path.mkdir()),
        _change_a_byte,
    ],
    ids=["missing", "empty", "truncated", "garbage", "a folder", "one bit"],
)
def test_an_entry_that_is_damaged_is_built_again(tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    folder = cache.entry(tmp_path, "key", build_deep)
    before = (folder / "first").read_bytes()
    damage(folder / name)
    assert not cache.is_whole(folder)
    assert cache.entry(tmp_path, "key", build_deep) == folder
    assert cache.is_whole(folder)
    assert (folder / "first").read_bytes() != before
    assert folders(tmp_path) == {"key"}


def test_an_empty_folder_or_a_file_is_no_entry(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for key in ("folder", "file"):
        assert cache.is_whole(cache.entry(tmp_path, key, build_deep))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("next_key", ["key", "other"])
def test_a_builder_that_is_killed_leaves_no_folder_and_no_tool(
    tmp_path: Path, number: signal.Signals, next_key: str
) -> None:
    root, presence = tmp_path / "cache", Presence(tmp_path)
    builder = start_python(LONG_BUILD, root, presence.path)
    presence.begins()
    assert len(folders(root)) == 1
    builder.send_signal(number)
    builder.communicate()
    presence.ends()
    assert (cache.entry(root, next_key, build_deep) / "first").exists()
    assert folders(root) == {next_key}


def test_a_builder_that_lives_keeps_its_folder(tmp_path: Path) -> None:
    root, presence = tmp_path / "cache", Presence(tmp_path)
    builder = start_python(LONG_BUILD, root, presence.path)
    presence.begins()
    (partial,) = folders(root)
    cache.entry(root, "other", build_deep)
    assert folders(root) == {"other", partial}
    assert (root / partial / "half").exists()
    builder.kill()
    builder.communicate()


@pytest.mark.regress
def test_a_command_that_is_terminated_cleans_up(tmp_path: Path) -> None:
    script = "import sys; from lutterfly.host.command.main import main; sys.exit(main(sys.argv[1:]))"
    words = ("verilog", "--config", "tiny", "-o", tmp_path / "core.v")
    command = start_python(script, *words, XDG_CACHE_HOME=str(tmp_path))
    root = tmp_path / "lutterfly" / "simulator"
    wait_until(lambda: list(root.glob("*.partial-*/config.json")))
    command.terminate()
    _, errors = command.communicate(timeout=60)
    assert (command.returncode, errors) == (128 + signal.SIGTERM, "")
    assert folders(root) == set()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lutterfly"]


def test_a_lock_that_is_never_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_LOCK_SECONDS", 0.2)
    path = tmp_path / "key.lock"
    with (
        cache.locked(path),
        pytest.raises(CacheError, match=rf"^{path}: must be released within 0\.2 s by the process that holds it, and"),
    ):
        cache.entry(tmp_path, "key", build_deep)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = rf"^{tmp_path}/file.*: must be a place that can be written: .*; permit it, or name another folder in XDG_"
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(CacheError, match=message):
            cache.entry(root, "key", build_deep)


def test_a_full_disk_is_named_and_nothing_stays(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 15) as disk:
        root = disk / "cache"
        message = rf"^{root}: no room is left for what is built; make room there, or name another folder in XDG_CACHE"
        with pytest.raises(CacheError, match=message):
            cache.entry(root, "key", lambda folder: (folder / "large").write_bytes(bytes(1 << 16)))
        assert folders(root) == set()
        assert cache.is_whole(cache.entry(root, "key", build_deep))


def test_a_tool_on_a_full_disk_is_explained(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 15) as disk:
        folder = disk / "folder"
        folder.mkdir()
        with pytest.raises(toolchain.ToolError) as caught:
            toolchain.run(
                ["dd", "if=/dev/zero", "of=large"], cwd=folder, env=dict(os.environ), log=folder / "build.log"
            )
        remedy = f"no space left on device in {disk}: make room there, or name another folder in XDG_CACHE_HOME"
        assert str(caught.value).startswith(f"dd failed with exit code 1; {remedy}; see {folder}/build.log\n")


def test_commands_with_a_full_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with small_disk(tmp_path / "disk", 1 << 15) as disk:
        monkeypatch.setenv("XDG_CACHE_HOME", str(disk))
        (disk / "large").write_bytes(bytes(1 << 15))
        assert main.main(["verify", str(digits.model_path("qop")), "--config", "tiny"]) == 2
        message = f"lutterfly: {disk}/lutterfly/simulator: no room is left for what is built; make room there, or"
        assert capsys.readouterr().err.startswith(message)


def test_temporary_files_of_tools_go_away_with_the_folder(tmp_path: Path) -> None:
    toolchain.run(["sh", "-c", 'echo "$TMPDIR" >found'], cwd=tmp_path, env=dict(os.environ), log=tmp_path / "log")
    assert (tmp_path / "found").read_text() == f"{tmp_path}\n"
