"""Fields of a command: which bits they have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Field:
    """Bits ``lsb`` to ``lsb + width - 1`` of a command; two's complement if ``signed``."""

    name: str
    lsb: int
    width: int
    signed: bool
    doc: str

    @property
    def limits(self) -> tuple[int, int]:
        """Least and greatest value."""
        if self.signed:
            return -(1 << self.width - 1), (1 << self.width - 1) - 1
        return 0, (1 << self.width) - 1


#: Name, width (negative if the field is signed) and meaning.
FieldSpec = tuple[str, int, str]


def place_fields(*specs: FieldSpec, lsb: int = 0) -> tuple[Field, ...]:
    """Lay fields one above the other, from bit ``lsb`` on."""
    placed = list[Field]()
    for name, width, doc in specs:
        placed.append(Field(name, lsb, abs(width), width < 0, doc))
        lsb += abs(width)
    return tuple(placed)


def fields_end(fields: tuple[Field, ...]) -> int:
    """The bit after the last field; 0 if there is none."""
    return max((field.lsb + field.width for field in fields), default=0)
