"""Rewrite what Verilator translates into long code: the same Verilog otherwise, the same values in every cycle.

* Signed operands become unsigned ones in offset binary: a signed number of n bits with its highest bit flipped is the
  number plus 2^(n-1). Verilator's extension of a sign takes four instructions for each operand, and a product has two
  of them; an offset is a constant, of which a sum has one.
* A bit that a concatenation repeats, as every extension of a sign does, becomes a replication, which Verilator takes as
  a whole; otherwise it assembles the bits in pairs.
* Modules that differ in nothing but their names become one: Amaranth writes one for each instance. What is not inlined
  then has its code once, and the processor's cache, through which the whole model passes in every cycle, holds more.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

_MODULE = re.compile(r"^module .*?^endmodule", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"module (\\\S+|\w+) *\(([^)]*)\);")
_INSTANCE = re.compile(r"^  (\\\S+|\w+)( +(?:\\\S+|\w+) +\()$", re.MULTILINE)
#: Yosys numbers these for the whole file.
_NUMBERED = re.compile(r"(?<=dump_module\$)\d+")
_DECLARATION = re.compile(r"^ *(?:input|output|wire|reg) (?:\[(\d+):0\] )?(\\\S+|\w+)", re.MULTILINE)
_CONCATENATION = re.compile(r"\{ ([^{}]+) \}")
#: A name, or its bit, or its slice. An escaped name ends with a space.
_REFERENCE = re.compile(r"(\\\S+|\w+) *(?:\[(\d+)(?::(\d+))?\])?")
_CONSTANT = re.compile(r"(\d+)'\w+")
_SIGNED = re.compile(r"^( *assign (.*) = )\$signed\(([^()]*)\) ([-+*<>]|[<>]=) \$signed\(([^()]*)\);$", re.MULTILINE)
#: Verilator keeps wider numbers as arrays of words, where flipping a bit is not free.
_WIDEST = 64


def rewrite(text: str) -> str:
    """``text``, Verilog as Yosys writes it, in the form that simulates fast."""
    return _merge(_CONCATENATION.sub(_replicate, _MODULE.sub(lambda module: _without_signs(module[0]), text)))


def _merge(text: str) -> str:
    """``text`` with one module in place of equal ones; its name is the first one's."""
    modules = [module[0] for module in _MODULE.finditer(text)]
    head = text[: text.index(modules[0])]
    while True:
        first: dict[str, str] = {}
        same = {_name(module): first.setdefault(_anonymous(module), _name(module)) for module in modules}
        if len(first) == len(modules):
            return head + "".join(f"{module}\n" for module in modules)
        # Those that have equal parts only now become equal.
        modules = [
            _INSTANCE.sub(lambda instance, same=same: f"  {same[instance[1]]}{instance[2]}", module)
            for module in modules
            if same[_name(module)] == _name(module)
        ]


def _name(module: str) -> str:
    return _NAME.match(module)[1]


def _anonymous(module: str) -> str:
    """The module's text without what makes it different from an equal one's: its name, the order of its ports."""
    head = _NAME.match(module)
    return f"{sorted(_parts(head[2]))}{_NUMBERED.sub('', module[head.end() :])}"


def _without_signs(module: str) -> str:
    widths = {name: int(high or 0) + 1 for high, name in _DECLARATION.findall(module)}

    def offset(match: re.Match[str]) -> str:
        head, target, left, operator, right = match.groups()
        needed = [_width(operand, widths) for operand in (left, right)]
        compared = operator[0] in "<>"
        width = max(needed) if compared else _width(target, widths)
        if not max(needed) <= width <= _WIDEST:
            return match[0]
        biased = [_biased(operand, own, width) for operand, own in zip((left, right), needed, strict=True)]
        biases = [1 << (own - 1) for own in needed]
        if compared:
            # Both get the bias of the wider.
            biased = [_plus(term, max(biases) - bias, width) for term, bias in zip(biased, biases, strict=True)]
            return f"{head}{biased[0]} {operator} {biased[1]};"
        if operator == "*":
            biased = [f"({_plus(term, -bias, width)})" for term, bias in zip(biased, biases, strict=True)]
            return f"{head}{biased[0]} * {biased[1]};"
        bias = biases[0] + biases[1] if operator == "+" else biases[0] - biases[1]
        return f"{head}{_plus(f'{biased[0]} {operator} {biased[1]}', -bias, width)};"

    return _SIGNED.sub(offset, module)


def _width(expression: str, widths: dict[str, int]) -> int:
    """Bits of a reference, a constant, or a concatenation of them."""
    total = 0
    for part in _parts(expression):
        if constant := _CONSTANT.fullmatch(part):
            total += int(constant[1])
        else:
            name, high, low = _split(part)
            total += widths[name] if high is None else high - low + 1
    return total


def _parts(expression: str) -> list[str]:
    return [part.strip() for part in expression.strip("{ }").split(",")]


def _split(reference: str) -> tuple[str, int | None, int]:
    """Name, highest and lowest bit; the highest is None for all bits."""
    match = _REFERENCE.fullmatch(reference)
    assert match, reference
    name, high, low = match.groups()
    return name, None if high is None else int(high), int(low or high or 0)


def _biased(operand: str, own: int, width: int) -> str:
    """The operand plus 2^(own-1), in ``width`` bits."""
    padding = f"{width - own}'d0, " if width > own else ""
    return f"({{ {padding}{operand.strip('{ }')}  }} ^ {width}'d{1 << (own - 1)})"


def _plus(term: str, addend: int, width: int) -> str:
    return f"{term} + {width}'d{addend % (1 << width)}" if addend else term


def _replicate(concatenation: re.Match[str]) -> str:
    """The concatenation in as few parts as there are: slices, and repeated bits."""
    runs: list[tuple[str, int, int, int]] = []
    bits = itertools.chain.from_iterable(_bits(part) for part in _parts(concatenation[1]))
    for (name, index), group in itertools.groupby(bits):
        count = len(list(group))
        if index is None:
            runs.append((name, -1, -1, count))
            continue
        before = runs[-1] if runs else ("", 0, 0, 0)
        if count == before[3] == 1 and (name, index) == (before[0], before[2] - 1):
            runs[-1] = (name, before[1], index, 1)
        else:
            runs.append((name, index, index, count))
    return f"{{ {', '.join(_text(*run) for run in runs)} }}"


def _bits(part: str) -> Iterator[tuple[str, int | None]]:
    if _CONSTANT.fullmatch(part):
        yield part, None
        return
    name, high, low = _split(part)
    if high is None:
        yield name, None
        return
    for index in range(high, low - 1, -1):
        yield name, index


def _text(name: str, high: int, low: int, count: int) -> str:
    index = "" if high < 0 else f"[{high}]" if high == low else f"[{high}:{low}]"
    text = f"{name} {index}"
    return f"{{{count}{{ {text} }}}}" if count > 1 else text
