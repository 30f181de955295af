"""Change generated Verilog so that it simulates fast: same cycles, fewer evaluations.

* Every change of the clock is a cycle, not only every rise: one evaluation a cycle instead of two.
* The inputs pass through registers in a wrapper. The harness hands over the next cycle's inputs before the edge, so
  that in each cycle the core sees what it would see without them; but logic behind inputs is evaluated once, with the
  state, not a second time.

Together this made the ``ecp5-85k`` core 1.6 times as fast; :mod:`.rewriting` makes an evaluation shorter.
"""

from __future__ import annotations

import re

from .enabled import gate
from .rewriting import rewrite
from .toolchain import ToolError

#: The module that the harness sees.
WRAPPER_NAME = "simulation"

_PORT = re.compile(r"^ *(input|output) (?:(\[\d+:0\]) )?(\w+);", re.MULTILINE)
#: What memories hold at first; elsewhere a line of the same form clears a bit in every cycle.
_INITIAL = re.compile(r"^ *initial begin\n.*?^ *end\n", re.MULTILINE | re.DOTALL)
_ZERO = re.compile(r"^ *\S+ ?\[\d+\] = \d+'[hd]0+;\n", re.MULTILINE)
#: What Yosys makes of an assertion with a message.
_ASSERTION = re.compile(r"^( *if \(!.*\))\n *\$write\((\".*\")\);\n *assert \(.*\);$", re.MULTILINE)
#: The harness's function, to which a broken assertion goes.
_NEVER = "lutterfly_never"


def wrap(text: str, top_name: str, clock: str, *, is_rewritten: bool = True) -> str:
    """Verilog with the module ``simulation`` around ``top_name``, whose clock has the name ``clock``; rewritten by
    :mod:`.rewriting` or as it is.

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
    """``text`` without the lines that set memory words to zero.

    The model's memories are zero at first anyway, and thousands of such lines compile slowly.
    """
    return _INITIAL.sub(lambda block: _ZERO.sub("", block[0]), text)
