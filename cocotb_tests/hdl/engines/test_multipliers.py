# amaranth: UnusedElaboratable=no
"""The arbiter of columns: who has factors is heard, all see the products; and who is connected with whom."""

from __future__ import annotations

import cocotb
import numpy as np
import pytest
from amaranth.hdl import Module

from benches.clocking import cycle, start
from lutterfly.golden.elements import NARROW_BITS
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.engines.mac_array import MacArray
from lutterfly.hdl.engines.maximum import Maximum
from lutterfly.hdl.engines.multipliers import ColumnArbiter, connect_multipliers

#: Columns of each borrower.
COLUMNS = [2, 3, 1]
LANES = 4
FACTOR_BITS, PRODUCT_BITS = NARROW_BITS * LANES, (NARROW_BITS + 8) * LANES


def test_arbitrates(simulate) -> None:
    simulate(ColumnArbiter(COLUMNS, LANES))


def test_nothing_is_built_where_nobody_borrows() -> None:
    m, config = Module(), PRESETS["tiny"]
    connect_multipliers(m, [MacArray(config), Maximum(config)], config.array.lanes)
    with pytest.raises(AttributeError, match="column_arbiter"):
        _ = m.submodules.column_arbiter


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def one_is_heard_and_all_see(dut) -> None:
    rng = np.random.default_rng(5)
    await start(dut, {f"borrower_{place}__factors": 0 for place in range(len(COLUMNS))})
    for number in range(200):
        # Each alone, and now and then nobody.
        asking = number % (len(COLUMNS) + 1)
        factors = [
            int.from_bytes(rng.bytes(FACTOR_BITS * columns // 8), "little") if place == asking else 0
            for place, columns in enumerate(COLUMNS)
        ]
        products = int.from_bytes(rng.bytes(PRODUCT_BITS * max(COLUMNS) // 8), "little")
        inputs = {f"borrower_{place}__factors": value for place, value in enumerate(factors)}
        names = [f"borrower_{place}__products" for place in range(len(COLUMNS))]
        heard, *seen = await cycle(dut, inputs | {"array__products": products}, "array__factors", *names)
        assert heard == sum(factors)
        assert seen == [products & (1 << PRODUCT_BITS * columns) - 1 for columns in COLUMNS]
