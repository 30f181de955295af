"""Messages on missing extras name a command that works where Lutterfly is installed."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from lutterfly.synth.tools import install_command, missing


@pytest.mark.parametrize(
    ("origin", "requirement"),
    [
        (None, ["lutterfly[report]"]),
        ({"url": "file:///a%20b/c", "dir_info": {"editable": True}}, ["--editable", "/a b/c[report]"]),
        ({"url": "file:///a/c", "dir_info": {}}, ["/a/c[report]"]),
        ({"url": "file:///a/l.whl", "archive_info": {}}, ["lutterfly[report] @ file:///a/l.whl"]),
        ({"url": "https://h/l", "vcs_info": {"vcs": "git"}}, ["lutterfly[report] @ git+https://h/l"]),
    ],
)
def test_command(origin: dict | None, requirement: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Found:
        def __init__(self, text: str | None) -> None:
            self.text = text

        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return self.text

    found = [Found(None), Found(json.dumps(origin) if origin else None)]
    monkeypatch.setattr(importlib.metadata, "distributions", lambda name: found if name == "lutterfly" else [])
    assert shlex.split(install_command("report")) == [sys.executable, "-m", "pip", "install", *requirement]


def test_this_checkout_is_installed_again_with_the_extra() -> None:
    """As `make` has installed it: by its folder, which need not be the current one."""
    words = shlex.split(install_command("synth"))
    if words[-1] == "lutterfly[synth]":
        pytest.skip("this Lutterfly comes from a package index")
    assert (Path(words[-1].removesuffix("[synth]")) / "pyproject.toml").is_file()


def test_training_without_pytorch_says_what_is_missing_and_what_installs_it() -> None:
    """Whether it is installed or not: a module that is None is one that cannot be imported."""
    script = "import sys; sys.modules['torch'] = None; import lutterfly.train"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    wanted = f"lutterfly.train needs PyTorch, which is not installed; run: {install_command('train')}"
    assert found.stderr.splitlines()[-1] == f"ModuleNotFoundError: {wanted}"


def test_several_tools_are_missing() -> None:
    wanted = f"x needs one, two, which are not installed; run: {install_command('synth')}"
    assert missing("x", ["one", "two"], "synth") == wanted
