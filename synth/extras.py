"""How optional dependencies get into the installation that is running, for messages that say that they are missing."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
import sys
from collections.abc import Sequence
from urllib.parse import urlsplit
from urllib.request import url2pathname

_NAME = "lutterfly"


def missing(what: str, tools: Sequence[str], extra: str) -> str:
    """Say in one line what needs tools that are not installed, and the command that installs them with their extra."""
    verb = "is" if len(tools) == 1 else "are"
    return f"{what} needs {', '.join(tools)}, which {verb} not installed; run: {install_command(extra)}"


def install_command(extra: str) -> str:
    """The command, for any working directory, that installs an extra where this Lutterfly is installed, from where it
    came: a checkout, a file or a package index.
    """
    return shlex.join([sys.executable, "-m", "pip", "install", *_requirement(extra)])


def _requirement(extra: str) -> list[str]:
    origin = _origin()
    url = str(origin.get("url", ""))
    if not url:
        return [f"{_NAME}[{extra}]"]
    if "dir_info" not in origin:
        version_control = origin.get("vcs_info", {}).get("vcs")
        return [f"{_NAME}[{extra}] @ {f'{version_control}+' if version_control else ''}{url}"]
    target = f"{url2pathname(urlsplit(url).path)}[{extra}]"
    return ["--editable", target] if origin["dir_info"].get("editable") else [target]


def _origin() -> dict:
    """What pip has noted of where the package came from; nothing if that was an index."""
    # In a checkout, the folder that a build leaves is found as well, and knows nothing.
    for found in importlib.metadata.distributions(name=_NAME):
        text = found.read_text("direct_url.json")
        if text:
            return json.loads(text)
    return {}
