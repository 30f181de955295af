"""Look-up tables as Verilog expressions, as short as their inputs permit.

The models of Yosys' library are trees of multiplexers; with them a netlist is twice the code, and simulates several
times as slowly.
"""

from __future__ import annotations

from collections.abc import Sequence

#: Tables of two inputs that depend on both, by their four bits.
_OF_TWO = {
    0b0001: "~({0} | {1})",
    0b0010: "{0} & ~{1}",
    0b0100: "~{0} & {1}",
    0b0110: "{0} ^ {1}",
    0b0111: "~({0} & {1})",
    0b1000: "{0} & {1}",
    0b1001: "~({0} ^ {1})",
    0b1011: "{0} | ~{1}",
    0b1101: "~{0} | {1}",
    0b1110: "{0} | {1}",
}
LOW, HIGH = "1'b0", "1'b1"


def look_up(table: int, inputs: Sequence[str]) -> str:
    """The bit of ``table`` at the number that ``inputs`` make, the first its lowest bit.

    Parameters
    ----------
    table : int
        A bit for each number.
    inputs : sequence of str
        Nets, or :data:`LOW` and :data:`HIGH`.

    Returns
    -------
    str
        An expression of one bit, or of more, of which the lowest counts.
    """
    names = list(inputs)
    # Levels first: what is left of the table then says on which nets it depends.
    for is_dropped in (lambda name, low, high: name in (LOW, HIGH), lambda name, low, high: low == high):
        for position in reversed(range(len(names))):
            low, high = halves(table, position, len(names))
            if is_dropped(names[position], low, high):
                table = high if names.pop(position) == HIGH else low
    return _written(table, names)


def halves(table: int, position: int, inputs: int) -> tuple[int, int]:
    """Of a table of so many inputs, those without the one at ``position``, when it is 0 and when it is 1."""
    found = [0, 0]
    for number in range(1 << inputs):
        level = number >> position & 1
        rest = number & ((1 << position) - 1) | number >> (position + 1) << position
        found[level] |= (table >> number & 1) << rest
    return found[0], found[1]


def _written(table: int, inputs: Sequence[str]) -> str:
    if not inputs:
        return HIGH if table & 1 else LOW
    if len(inputs) == 1:
        return inputs[0] if table == 0b10 else f"~{inputs[0]}"
    if len(inputs) == 2:
        return _OF_TWO[table].format(*inputs)
    return f"{1 << len(inputs)}'h{table:x} >> {{{', '.join(reversed(inputs))}}}"
