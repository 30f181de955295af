"""How many block RAMs a table takes, and whether there are as many."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...hdl.parts.table_rom import TableRom

#: Of each family: words and bits of a block RAM, in the forms that it has.
FORMS = {
    "ecp5": ((16_384, 1), (8192, 2), (4096, 4), (2048, 9), (1024, 18), (512, 36)),
    "xilinx": ((32_768, 1), (16_384, 2), (8192, 4), (4096, 9), (2048, 18), (1024, 36)),
}


@dataclass(frozen=True, slots=True)
class BlockRams:
    """The block RAMs that there are for a table.

    Attributes
    ----------
    family : str
        A key of ``FORMS``.
    count : int
    """

    family: str
    count: int

    @classmethod
    def parse(cls, text: str) -> BlockRams:
        """Read ``FAMILY=COUNT``, as ``ecp5=56``.

        Raises
        ------
        ValueError
            If it is something else.
        """
        found = re.fullmatch(rf"({'|'.join(FORMS)})=([0-9]{{1,6}})", text)
        if not found:
            raise ValueError(f"block-rams must be {' or '.join(f'{family}=COUNT' for family in FORMS)}, not {text}")
        return cls(found[1], int(found[2]))

    def check(self, rom: TableRom) -> None:
        """Check that a ROM fits.

        Raises
        ------
        ValueError
            If it takes more; says what takes fewer.
        """
        needed = block_rams(rom)[self.family]
        if needed > self.count:
            half = "" if rom.half else ", or make the operator even or odd about the middle code: half is stored then"
            raise ValueError(
                f"the table must fit {self.count} block RAMs of {self.family}, not {needed} for {rom.stored_entries:,} "
                f"entries of {rom.result.width} bits; choose schemes of 8 bits{half}"
            )


def block_rams(rom: TableRom) -> dict[str, int]:
    """How many block RAMs of each family hold a ROM, none if it lies in the fabric.

    It may be fewer: synthesis leaves out those whose bits are all the same, as where a function saturates.
    """
    words, bits = rom.stored_entries, rom.result.width
    return {
        family: min(-(-words // depth) * -(-bits // width) for depth, width in forms) if rom.is_block else 0
        for family, forms in FORMS.items()
    }
