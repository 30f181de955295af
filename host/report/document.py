"""The HTML document: its head, sections, tables and policy."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from . import style

MEASURED, PREDICTED = "measured", "predicted"


#: The browser loads nothing, whatever the names of a model contain.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


#: Buttons by name, because some of the library's default ones lead to other sites.
BUTTONS = [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]]


CONFIG = {"responsive": True, "displaylogo": False, "modeBarButtons": BUTTONS}


STYLE = """
:root { color: #24292f; font: 15px/1.5 FONT }
body { margin: 0 auto; max-width: 1280px; padding: 24px; background: #f6f7f8 }
h1 { font-size: 24px; margin: 0 } h2 { font-size: 18px; margin: 0 0 4px } p { margin: 4px 0 12px; color: #57606a }
section, .card { background: white; border: 1px solid #e1e4e8; border-radius: 8px }
section { padding: 16px 20px; margin-top: 20px }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin-top: 16px }
.card { padding: 10px 14px } .card b { display: block; font-size: 18px; font-weight: 600; overflow-wrap: anywhere }
.card span { color: #57606a; font-size: 13px }
.tag { font-size: 12px; font-weight: 500; border-radius: 10px; padding: 1px 8px; margin-left: 6px; vertical-align: 2px }
.measured { background: #e3eef6; color: #23516f } .predicted { background: #f1ebf5; color: #634978 }
summary { cursor: pointer; color: #57606a } .scroll { overflow-x: auto }
table { border-collapse: collapse; font-size: 13px; width: 100% }
th, td { padding: 4px 10px; text-align: left; border-bottom: 1px solid #eaecef; vertical-align: top }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
th { color: #57606a; font-weight: 600 } tr:last-child td { border-bottom: 0 }
"""


def document(title: str, parts: Iterable[str]) -> str:
    """Return a complete page, from its title and its parts in HTML."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title>"
        f"<style>{STYLE.replace('FONT', style.FONT)}</style><script>{get_plotlyjs()}</script></head>\n"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def section(title: str, tags: Sequence[str], text: str, drawn: go.Figure, name: str, below: str = "") -> str:
    """Return a part with a figure; ``tags`` are ``MEASURED`` and ``PREDICTED``, ``name`` is unique in the page."""
    chart = drawn.to_html(full_html=False, include_plotlyjs=False, div_id=name, config=CONFIG)
    return text_section(title, tags, text, chart + below)


def text_section(title: str, tags: Sequence[str], text: str, body: str) -> str:
    """Return a part with a body in HTML."""
    shown = "".join(f'<span class="tag {tag}">{tag}</span>' for tag in tags)
    return f"<section><h2>{title}{shown}</h2><p>{text}</p>{body}</section>\n"


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numeric: set[int]) -> str:
    """Return a table; columns whose numbers are in ``numeric`` are aligned to the right."""
    kinds = ['class="n"' if column in numeric else "" for column in range(len(head))]
    lines = ["".join(f"<th {kind}>{html.escape(cell)}</th>" for cell, kind in zip(head, kinds, strict=True))]
    lines += [
        "".join(f"<td {kind}>{html.escape(cell)}</td>" for cell, kind in zip(row, kinds, strict=True)) for row in rows
    ]
    return '<div class="scroll"><table>' + "".join(f"<tr>{line}</tr>" for line in lines) + "</table></div>"
