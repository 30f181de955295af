"""Let registers with an enable stand still together with the logic between them: the same Verilog otherwise.

Amaranth writes a register of a part that sleeps (``hdl/parts/pipeline.py``) as one that takes its own value again, so
that Verilator evaluates what stands in front of it in every cycle. Here the enable goes to the clock's event instead:
what depends on such registers alone is evaluated only when they change.
"""

from __future__ import annotations

import re
from collections import Counter

from ...golden.pins import AWAKE

_MODULE = re.compile(r"^module .*?^endmodule", re.MULTILINE | re.DOTALL)
_INPUT = re.compile(rf"^  input {AWAKE};$", re.MULTILINE)
#: What registers take next: their own values, and others if they are enabled. With a reset there is more behind it.
_NEXT = re.compile(
    r"(^  always @\* begin\n    if \(.*\) begin end\n)((?:    \S+ *= \S+ *;\n)+)"
    rf"    if \({AWAKE}\) begin\n((?:      .*\n)+)    end\n(  end\n)",
    re.MULTILINE,
)
_OWN = re.compile(r"    (\S+) *= (\S+) *;\n")
_WORD = re.compile(r"\\\S+|[\w$]+")
_REGISTER = re.compile(r"^  always @\(posedge (\w+)\)\n    (\S+) *<= (\S+) *;\n", re.MULTILINE)


def gate(text: str) -> str:
    """``text``, Verilog as Yosys writes it, with the enables of parts that sleep at their clocks."""
    return _MODULE.sub(lambda module: _gated(module[0]) if _INPUT.search(module[0]) else module[0], text)


def _gated(module: str) -> str:
    registers = {value: register for _, register, value in _REGISTER.findall(module)}
    words, gated = Counter(_WORD.findall(module)), set()

    def enabled(match: re.Match[str]) -> str:
        head, defaults, body, end = match.groups()
        pairs = _OWN.findall(defaults)
        # A value that something else reads as well has to be the register's own while that stands still.
        inside = Counter(_WORD.findall(match[0]))
        # Outside stand its declaration and its register.
        if not all(registers.get(value) == own and words[value] - inside[value] == 2 for value, own in pairs):
            return match[0]
        gated.update(value for value, _ in pairs)
        return f"{head}{defaults}{body}{end}"

    module = _NEXT.sub(enabled, module)
    return _REGISTER.sub(lambda match: _clocked(match, gated), module)


def _clocked(match: re.Match[str], gated: set[str]) -> str:
    clock, _, value = match.groups()
    return match[0].replace(f"(posedge {clock})", f"(posedge {clock} iff {AWAKE})") if value in gated else match[0]
