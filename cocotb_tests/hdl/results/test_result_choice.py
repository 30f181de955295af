# amaranth: UnusedElaboratable=no
"""The result of the component that had the last step, whatever the others give; wide ones with all their bits."""

from __future__ import annotations

import cocotb
import numpy as np

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.streams import unpack
from lutterfly.golden.elements import NARROW_BITS
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.results.results import ResultChoice, any_result_layout

CONFIG = PRESETS["tiny"]
LANES = CONFIG.array.lanes
IS_NARROW = [True, False, True, False]


def test_chooses(simulate) -> None:
    simulate(ResultChoice(CONFIG, IS_NARROW))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def who_had_the_last_step(dut) -> None:
    rng, layout = np.random.default_rng(2), any_result_layout(CONFIG)
    await start(dut, {"steps": 0, **{f"result_{place}": 0 for place in range(len(IS_NARROW))}})
    works = None
    for number in range(400):
        totals = rng.integers(-(1 << 31), 1 << 31, (len(IS_NARROW), LANES)).astype(np.int32)
        valid = rng.integers(2, size=len(IS_NARROW))
        inputs = {
            f"result_{place}": int.from_bytes(totals[place].tobytes(), "little") << 1 | int(valid[place])
            for place in range(len(IS_NARROW))
        }
        chosen = int(rng.integers(len(IS_NARROW))) if number == 0 or rng.random() < 0.3 else None
        (bits,) = await cycle(dut, inputs | {"steps": 0 if chosen is None else 1 << chosen}, "result")
        if works is not None:
            found = unpack(bits, layout)
            assert found["valid"] == valid[works]
            assert found["is_wide"] == int(not IS_NARROW[works])
            low = [found["low"][lane] for lane in range(LANES)]
            assert low == totals[works].astype(np.int16).tolist()
            if not IS_NARROW[works]:
                assert [found["high"][lane] for lane in range(LANES)] == (
                    totals[works].view(np.uint32) >> NARROW_BITS
                ).tolist()
        works = works if chosen is None else chosen
