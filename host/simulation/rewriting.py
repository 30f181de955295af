"""Rewrite Verilog that Verilator would translate into long code; values are the same in every cycle.

* Signed operands become unsigned ones in offset binary: a signed number of n bits with its highest bit flipped is the
  number plus 2^(n-1). Verilator's extension of a sign takes four instructions for each operand, and a product has two
  of them; an offset is a constant, of which a sum has one.
* A bit that a concatenation repeats, as every extension of a sign does, becomes a replication, which Verilator treats
  as a whole; otherwise it assembles the bits in pairs.
* Modules that differ only in their names become one: Amaranth writes one for each instance. Functions that are not
  inlined then have their code once, and more of the model, all of which is executed in every cycle, fits the
  processor's cache.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator

from ...golden.pins import AWAKE
from .toolchain import ToolError

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
    """Rewrite ``text``, Verilog as Yosys writes it, into the form that simulates fast."""
    return _merge(_CONCATENATION.sub(_replicate, _MODULE.sub(lambda module: _without_signs(module[0]), text)))


def _merge(text: str) -> str:
    """Replace equal modules of ``text`` by one, which has the first one's name."""
    modules = [module[0] for module in _MODULE.finditer(text)]
    head = text[: text.index(modules[0])]
    while True:
        first: dict[str, str] = {}
        same = {_name(module): first.setdefault(_anonymous(module), _name(module)) for module in modules}
        if len(first) == len(modules):
            return head + "".join(f"{module}\n" for module in modules)
        # Merging submodules can make further modules equal.
        modules = [
            _INSTANCE.sub(lambda instance, same=same: f"  {same[instance[1]]}{instance[2]}", module)
            for module in modules
            if same[_name(module)] == _name(module)
        ]


def _name(module: str) -> str:
    return _NAME.match(module)[1]


def _anonymous(module: str) -> str:
    """Return the module's text without differences between equal modules: its name, and the order of its ports."""
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
            # Both get the bias of the wider one.
            biased = [_plus(term, max(biases) - bias, width) for term, bias in zip(biased, biases, strict=True)]
            return f"{head}{biased[0]} {operator} {biased[1]};"
        if operator == "*":
            biased = [f"({_plus(term, -bias, width)})" for term, bias in zip(biased, biases, strict=True)]
            return f"{head}{biased[0]} * {biased[1]};"
        bias = biases[0] + biases[1] if operator == "+" else biases[0] - biases[1]
        return f"{head}{_plus(f'{biased[0]} {operator} {biased[1]}', -bias, width)};"

    return _SIGNED.sub(offset, module)


def _width(expression: str, widths: dict[str, int]) -> int:
    """Return the bits of a reference, a constant, or a concatenation of them."""
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
    """Split a reference into name, highest and lowest bit; the highest is None for all bits."""
    match = _REFERENCE.fullmatch(reference)
    assert match, reference
    name, high, low = match.groups()
    return name, None if high is None else int(high), int(low or high or 0)


def _biased(operand: str, own: int, width: int) -> str:
    """Return the operand plus 2^(own-1), in ``width`` bits."""
    padding = f"{width - own}'d0, " if width > own else ""
    return f"({{ {padding}{operand.strip('{ }')}  }} ^ {width}'d{1 << (own - 1)})"


def _plus(term: str, addend: int, width: int) -> str:
    return f"{term} + {width}'d{addend % (1 << width)}" if addend else term


def _replicate(concatenation: re.Match[str]) -> str:
    """Rewrite a concatenation into as few slices and replications as possible."""
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


# Gate the clocks of registers with an enable, and so of the logic between them; nothing else changes.
#
# Amaranth writes a clock-gated register (``hdl/parts/pipeline.py``) as one that takes its own value again, so that
# Verilator evaluates the logic before it in every cycle. Here the enable goes to the clock's event instead: logic that
# depends only on such registers is evaluated only when they change.

_INPUT = re.compile(rf"^  input {AWAKE};$", re.MULTILINE)
#: The next value of registers: their own, or another one if they are enabled. With a reset more text follows.
_NEXT = re.compile(
    r"(^  always @\* begin\n    if \(.*\) begin end\n)((?:    \S+ *= \S+ *;\n)+)"
    rf"    if \({AWAKE}\) begin\n((?:      .*\n)+)    end\n(  end\n)",
    re.MULTILINE,
)
_OWN = re.compile(r"    (\S+) *= (\S+) *;\n")
_WORD = re.compile(r"\\\S+|[\w$]+")
_REGISTER = re.compile(r"^  always @\(posedge (\w+)\)\n    (\S+) *<= (\S+) *;\n", re.MULTILINE)


def gate(text: str) -> str:
    """Move the enables of clock-gated parts in ``text``, Verilog as Yosys writes it, to their clocks."""
    return _MODULE.sub(lambda module: _gated(module[0]) if _INPUT.search(module[0]) else module[0], text)


def _gated(module: str) -> str:
    registers = {value: register for _, register, value in _REGISTER.findall(module)}
    words, gated = Counter(_WORD.findall(module)), set()

    def enabled(match: re.Match[str]) -> str:
        head, defaults, body, end = match.groups()
        pairs = _OWN.findall(defaults)
        # If other logic reads the next value too, it has to be the register's own value while the clock is off.
        inside = Counter(_WORD.findall(match[0]))
        # Its declaration and its register are not counted.
        if not all(registers.get(value) == own and words[value] - inside[value] == 2 for value, own in pairs):
            return match[0]
        gated.update(value for value, _ in pairs)
        return f"{head}{defaults}{body}{end}"

    module = _NEXT.sub(enabled, module)
    return _REGISTER.sub(lambda match: _clocked(match, gated), module)


def _clocked(match: re.Match[str], gated: set[str]) -> str:
    clock, _, value = match.groups()
    return match[0].replace(f"(posedge {clock})", f"(posedge {clock} iff {AWAKE})") if value in gated else match[0]


# Change generated Verilog so that it simulates fast: same cycles, fewer evaluations.
#
# * Every change of the clock is a cycle, not only every rise: one evaluation a cycle instead of two.
# * The inputs pass through registers in a wrapper. The harness sets the next cycle's inputs before the edge, so the
#   core sees the same inputs in each cycle as without registers; but logic after inputs is evaluated once, with the
#   state, not a second time.
#
# Together this made the ``ecp5-85k`` core 1.6 times as fast; the rewriting above makes an evaluation shorter.

#: The module that the harness instantiates.
WRAPPER_NAME = "simulation"

_PORT = re.compile(r"^ *(input|output) (?:(\[\d+:0\]) )?(\w+);", re.MULTILINE)
#: Initial contents of memories; elsewhere a line of the same form clears a bit in every cycle.
_INITIAL = re.compile(r"^ *initial begin\n.*?^ *end\n", re.MULTILINE | re.DOTALL)
_ZERO = re.compile(r"^ *\S+ ?\[\d+\] = \d+'[hd]0+;\n", re.MULTILINE)
#: The form in which Yosys writes an assertion with a message.
_ASSERTION = re.compile(r"^( *if \(!.*\))\n *\$write\((\".*\")\);\n *assert \(.*\);$", re.MULTILINE)
#: The harness's function that a broken assertion calls.
_NEVER = "lutterfly_never"


def wrap(text: str, top_name: str, clock: str, *, is_rewritten: bool = True) -> str:
    """Return Verilog with the module ``simulation`` around ``top_name``, whose clock is ``clock``.

    The Verilog is rewritten for speed or stays unchanged.

    Raises
    ------
    ToolError
        If ``text`` has no such module, or it has no clock.
    """
    module = re.search(rf"^module {top_name}\(.*?^endmodule", text, re.MULTILINE | re.DOTALL)
    ports = (
        [(direction, f"{width} " if width else "", name) for direction, width, name in _PORT.findall(module[0])]
        if module
        else []
    )
    if ("input", "", clock) not in ports:
        raise ToolError(f"the Verilog must have a module {top_name} with an input {clock}")
    inputs = [(width, name) for direction, width, name in ports if direction == "input" and name != clock]
    outputs = [(width, name) for direction, width, name in ports if direction == "output"]
    names = [name for _, name in (*inputs, *outputs)]
    links = [f".{name}({name}__now)" for _, name in inputs] + [f".{name}({name})" for _, name in outputs]
    lines = [
        f"module {WRAPPER_NAME}({', '.join([clock, *names])});",
        f"  input {clock};",
        *(f"  input {width}{name};\n  reg {width}{name}__now = 0;" for width, name in inputs),
        *(f"  output {width}{name};" for width, name in outputs),
        f"  always @(posedge {clock}) begin",
        *(f"    {name}__now <= {name};" for _, name in inputs),
        "  end",
        f"  {top_name} core({', '.join([f'.{clock}({clock})', *links])});",
        "endmodule\n",
    ]
    text = _ASSERTION.sub(rf"\1 {_NEVER}(\2);", _without_zeros(text))
    head = f'import "DPI-C" function void {_NEVER}(input string message);\n'
    return head + ((rewrite(gate(text)) if is_rewritten else text) + "\n".join(lines)).replace("@(posedge ", "@(edge ")


def _without_zeros(text: str) -> str:
    """Remove the lines that set memory words to zero from ``text``.

    The model's memories are zero at first anyway, and thousands of such lines compile slowly.
    """
    return _INITIAL.sub(lambda block: _ZERO.sub("", block[0]), text)
