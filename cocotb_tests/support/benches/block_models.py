"""What a block RAM and a multiplier of the ECP5 do, in Python: judges of the Verilog models, by the vendor's guides."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

_FACTOR_BITS, _PRODUCT_MASK = 18, (1 << 36) - 1
_ROWS, _BYTES = 512, 4


@dataclass
class Ram:
    """A block RAM, bit by bit; both ports have one clock.

    Parameters
    ----------
    widths, write_modes, has_output : by port, A and B
    """

    widths: tuple[int, int]
    write_modes: tuple[str, str]
    has_output: tuple[bool, bool]
    bits: np.ndarray = field(default_factory=lambda: np.zeros((_ROWS * _BYTES, 9), np.uint8))

    def __post_init__(self) -> None:
        self.read: list[list[int]] = [[0] * width for width in self.widths]
        self.kept: list[list[int]] = [[0] * width for width in self.widths]

    def places(self, port: int, address: int) -> list[tuple[int, int]]:
        """Byte and bit of each bit of the word at an address of 14 bits, whose lowest ones narrow words use."""
        width = self.widths[port]
        if width >= 9:
            first = address >> {9: 3, 18: 4, 36: 5}[width]
            return [(first * (width // 9) + index // 9, index % 9) for index in range(width)]
        word = address >> {1: 0, 2: 1, 4: 2}[width]
        return [divmod(word * width + index, 8) for index in range(width)]

    def step(self, ports: list[dict[str, int]]) -> list[list[int]]:
        """A clock edge with address, data, enable, write and output_enable of both ports; what comes out after it."""
        places = [self.places(port, one["address"]) for port, one in enumerate(ports)]
        written = [self._written(port, one, places[port]) for port, one in enumerate(ports)]
        for port, one in enumerate(ports):
            if one["output_enable"]:
                self.kept[port] = self.read[port]
            if not one["enable"] or (port == 0 and self.widths[0] == 36):
                continue
            others = written[1 - port]
            seen = [1 - others[place] if place in others else int(self.bits[place]) for place in places[port]]
            mode = self.write_modes[port]
            if not one["write"] or mode == "READBEFOREWRITE":
                self.read[port] = seen
            elif mode == "WRITETHROUGH":
                before = self.read[port]
                self.read[port] = [written[port].get(at, old) for at, old in zip(places[port], before, strict=True)]
        for changes in written:
            for place, level in changes.items():
                self.bits[place] = level
        return [self.kept[port] if self.has_output[port] else self.read[port] for port in (0, 1)]

    def _written(self, port: int, one: dict[str, int], places: list[tuple[int, int]]) -> dict[tuple[int, int], int]:
        if not one["enable"] or not one["write"]:
            return {}
        enables = one["address"] if self.widths[port] >= 18 else (1 << _BYTES) - 1
        return {
            place: one["data"] >> index & 1
            for index, place in enumerate(places)
            if self.widths[port] < 18 or enables >> (index // 9) & 1
        }


@dataclass
class Multiplier:
    """A multiplier with registers where they are switched on."""

    has_inputs: tuple[bool, bool]
    has_pipeline: bool
    has_output: bool

    def __post_init__(self) -> None:
        self.factors = [0, 0]
        self.middle = self.output = 0

    def step(self, factors: tuple[int, int], signs: tuple[int, int], *, enable: int, reset: int) -> int:
        """A clock edge; what comes out after it, while the inputs stay."""
        values = [
            factor - (factor >> (_FACTOR_BITS - 1) << _FACTOR_BITS if sign else 0)
            for factor, sign in zip(factors, signs, strict=True)
        ]
        middle, product = self._through(values)[0], self._product(values)
        if reset:
            self.factors, self.middle, self.output = [0, 0], 0, 0
        elif enable:
            self.factors, self.middle, self.output = values, product, middle
        return self._through(values)[1] & _PRODUCT_MASK

    def _product(self, values: list[int]) -> int:
        a, b = (kept if has else value for kept, has, value in zip(self.factors, self.has_inputs, values, strict=True))
        return a * b

    def _through(self, values: list[int]) -> tuple[int, int]:
        """What the output register would take, and what comes out."""
        middle = self.middle if self.has_pipeline else self._product(values)
        return middle, self.output if self.has_output else middle
