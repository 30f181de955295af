"""Open a page in headless Chromium, cut off from the network: what it draws, and what it complains about."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
#: Without a sandbox because tests may run as root; the page is ours.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--enable-logging=stderr",
    "--virtual-time-budget=10000",
    "--window-size=1300,5200",
    "--dump-dom",
)
#: Writes into the page where each text of it stands: class of the element around it, text, left, top, right, bottom.
_MEASURE = """<script>addEventListener("load", () => setTimeout(() => {
  const boxes = {};
  for (const plot of document.querySelectorAll(".js-plotly-plot")) {
    boxes[plot.id] = [...plot.querySelectorAll("text")].map(text => {
      const box = text.getBoundingClientRect();
      return [text.parentNode.getAttribute("class"), text.textContent, box.left, box.top, box.right, box.bottom];
    });
  }
  const out = document.createElement("pre");
  out.id = "boxes"; out.textContent = JSON.stringify(boxes); document.body.append(out);
}, 2000))</script></body>"""


@dataclass(frozen=True, slots=True)
class Text:
    """A text in a figure, and where it stands on the page, in pixels."""

    kind: str
    text: str
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Text) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


@dataclass(frozen=True, slots=True)
class Opened:
    """A page as the browser shows it: the texts of each figure, its document, the console's lines, a picture."""

    texts: dict[str, list[Text]]
    document: str
    console: list[str]
    picture: Image.Image


def open_page(page: str, folder: Path) -> Opened:
    """Open a page; the test is skipped where there is no Chromium."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip(f"none of {', '.join(PROGRAMS)} is installed; `make regress` as root installs it on Debian")
    path, picture = folder / "page.html", folder / "page.png"
    path.write_text(page.replace("</body>", _MEASURE))
    flags = (*FLAGS, f"--user-data-dir={folder / 'profile'}", f"--screenshot={picture}")
    result = subprocess.run(
        [program, *flags, path.as_uri()], capture_output=True, text=True, timeout=120, check=True, cwd=folder
    )
    found = re.search(r'<pre id="boxes">(.*?)</pre>', result.stdout, re.DOTALL)
    assert found, result.stderr
    boxes = json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    return Opened(
        {name: [Text(*text) for text in texts] for name, texts in boxes.items()},
        result.stdout,
        [line for line in result.stderr.splitlines() if "CONSOLE" in line],
        Image.open(picture).convert("RGB"),
    )
