# amaranth: UnusedElaboratable=no
"""The arbiter of columns: who has factors, and weights, is heard, all see the products; and who is connected."""

from __future__ import annotations

import dataclasses

import cocotb
import numpy as np
import pytest
from amaranth.hdl import Module

from cocotb_tests.support.benches.clocking import cycle, start
from lutterfly.golden.elements import DIFFERENCE_BITS, NARROW_BITS
from lutterfly.golden.engines import MULTIPLY
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.engines.mac_array import MacArray
from lutterfly.hdl.engines.maximum import Maximum
from lutterfly.hdl.engines.multipliers import ColumnArbiter, connect_multipliers

#: Columns of each borrower, and those of them to which it gives weights.
COLUMNS, WEIGHED = [2, 3, 1, 2], [0, 0, 1, 2]
LANES = 4
FACTOR_BITS, WEIGHT_BITS = NARROW_BITS * LANES, DIFFERENCE_BITS * LANES
#: Of products, for who gives no weights and for all others.
PLAIN_BITS, PRODUCT_BITS = NARROW_BITS + 8, NARROW_BITS + DIFFERENCE_BITS


def test_arbitrates(simulate) -> None:
    simulate(ColumnArbiter(COLUMNS, WEIGHED, LANES))


def test_nothing_is_built_where_nobody_borrows() -> None:
    m, config = Module(), PRESETS["tiny"]
    config = dataclasses.replace(config, engines=config.engines.without(MULTIPLY))
    connect_multipliers(m, [MacArray(config), Maximum(config)], config.array.lanes)
    with pytest.raises(AttributeError, match="column_arbiter"):
        _ = m.submodules.column_arbiter


def narrowed(products: int, columns: int, bits: int) -> int:
    """The products of some columns with fewer bits each."""
    fields = [products >> PRODUCT_BITS * place & (1 << bits) - 1 for place in range(columns * LANES)]
    return sum(field << bits * place for place, field in enumerate(fields))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def one_is_heard_and_all_see(dut) -> None:
    rng = np.random.default_rng(5)
    places = range(len(COLUMNS))

    def bits(count: int) -> int:
        return int.from_bytes(rng.bytes(-(-count // 8)), "little") & (1 << count) - 1

    idle = {f"borrower_{place}__factors": 0 for place in places}
    await start(dut, idle | {f"borrower_{place}__weighs": 0 for place in places if WEIGHED[place]})
    for number in range(200):
        # Each alone, and now and then nobody; weights stand there whether they count or not.
        asking = number % (len(COLUMNS) + 1)
        factors = [bits(FACTOR_BITS * columns) * (place == asking) for place, columns in enumerate(COLUMNS)]
        weights = {place: bits(WEIGHT_BITS * columns) for place, columns in enumerate(WEIGHED) if columns}
        products = bits(PRODUCT_BITS * LANES * max(COLUMNS))
        inputs = {f"borrower_{place}__factors": value for place, value in enumerate(factors)}
        inputs |= {f"borrower_{place}__weights": value for place, value in weights.items()}
        inputs |= {f"borrower_{place}__weighs": ((1 << LANES) - 1) * (place == asking) for place in weights}
        names = [f"borrower_{place}__products" for place in places]
        heard, given, weighs, *seen = await cycle(
            dut,
            inputs | {"array__products": products},
            *(f"array__{end}" for end in ("factors", "weights", "weighs")),
            *names,
        )
        assert heard == sum(factors)
        assert weighs == ((1 << LANES) - 1) * (asking in weights)
        assert given == weights.get(asking, 0)
        widths = [PRODUCT_BITS if own else PLAIN_BITS for own in WEIGHED]
        assert seen == [narrowed(products, *sizes) for sizes in zip(COLUMNS, widths, strict=True)]
