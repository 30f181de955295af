# amaranth: UnusedElaboratable=no
"""The hop to the next column: a step later, and in chain mode the word of so many steps before."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.streams import pack, unpack
from lutterfly.golden.engines import DEPTHWISE, MAC
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.engines.depthwise import DepthwiseStage
from lutterfly.hdl.engines.engine import step_layout
from lutterfly.hdl.engines.mac_array import ColumnHop

CONFIG = PRESETS["tiny"]
#: More than a delay line has in one part.
LANES = 16
LAYOUT = step_layout(CONFIG, (MAC, DEPTHWISE), ("chain",))
MOST_ROWS = (1 << next(field.width for field in DEPTHWISE.fields if field.name == "rows")) - 1


@pytest.mark.parametrize("has_line", [True, False])
def test_hops(simulate, has_line: bool) -> None:
    # To a column of the chain, and to the one behind it.
    stage = DepthwiseStage(CONFIG, DEPTHWISE)
    hop = ColumnHop(word_bits=8 * LANES, step=LAYOUT, column=1 if has_line else stage.taps, stages=[stage])
    simulate(hop, env={"HAS_LINE": str(int(has_line))})


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_gap=[0.0, 0.4])
async def words_of_earlier_steps(dut, p_gap: float) -> None:
    rng, has_line = np.random.default_rng(6), os.environ["HAS_LINE"] == "1"
    await start(dut, {"step": 0, "word": 0})
    before, compared = None, 0
    for rows in [1, 2, MOST_ROWS, MOST_ROWS - 1, *rng.integers(1, MOST_ROWS + 1, 16).tolist()]:
        is_chain, words = bool(rng.random() < 0.7), list[int]()
        while len(words) < 3 * rows:
            is_step, word = bool(rng.random() >= p_gap), int.from_bytes(rng.bytes(LANES), "little")
            step = {"valid": int(is_step), "clear": int(rng.integers(2)), "fire": int(rng.integers(2))}
            step |= {"chain": int(is_chain), "fields": {"depthwise": {"rows": rows}}}
            outputs = await cycle(dut, {"step": pack(step, LAYOUT), "word": word}, "next_step", "next_word")
            if before is not None:
                expected_step, expected_word = before
                assert unpack(outputs[0], LAYOUT) == expected_step
                assert expected_word in (None, outputs[1]), f"{rows} rows, step {len(words)}"
                compared += expected_word is not None
            expected = word
            if has_line and is_chain:
                # The first steps of a command see what is left of the one before.
                expected = words[-rows] if is_step and len(words) >= rows else None
            before = (step, expected)
            if is_step:
                words.append(word)
    assert compared > 500
