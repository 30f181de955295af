"""Components as Verilog, in which the contents of memories are as short as tools need them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from amaranth.back import verilog

__all__ = ["to_verilog"]

#: Words that stand in one block.
_BLOCK = 64
_BEGIN, _END = "  initial begin", "  end"
#: A word of a memory, and one that is zero.
_WORD = re.compile(r"    (?:\\\S+ |\w+)\[\d+\] = \d+'[dh][0-9a-f]+;")
_ZERO = re.compile(r"    .* = \d+'[dh]0+;")


def to_verilog(component, *, name: str, platform=None) -> str:
    """Generate the Verilog of a component.

    Amaranth writes every word of every memory, in a block for each. Memories that begin with zeros alone are left
    without contents: nothing reads a word before it is written. Others stand in blocks of 64 words, since Yosys takes a
    time that goes with the square of a block's length: a quarter of an hour for 65,536 words in one, seconds in 1,024.

    Parameters
    ----------
    component : Elaboratable
    name : str
        Of the top module.
    platform : object
        What components are elaborated for; see :mod:`.assertions`.

    Returns
    -------
    str
    """
    text = verilog.convert(component, platform=platform, name=name, emit_src=False, strip_internal_attrs=True)
    return "\n".join(_shortened(text.splitlines())) + "\n"


def _shortened(lines: list[str]) -> Iterator[str]:
    """The lines with other blocks of contents."""
    at = 0
    while at < len(lines):
        if lines[at] != _BEGIN:
            yield lines[at]
            at += 1
            continue
        end = lines.index(_END, at)
        words = lines[at + 1 : end]
        at = end + 1
        if not all(map(_WORD.fullmatch, words)):
            yield from (_BEGIN, *words, _END)
        elif not all(map(_ZERO.fullmatch, words)):
            for first in range(0, len(words), _BLOCK):
                yield from (_BEGIN, *words[first : first + _BLOCK], _END)
