# amaranth: UnusedElaboratable=no
"""From a transfer to its chunks: every piece cut by the book, the beats that it takes, and what lies outside."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import start
from cocotb_tests.support.benches.streams import StreamMonitor, receive, send
from cocotb_tests.support.tiers import SWEPT_PRESETS
from lutterfly.golden.config import Config
from lutterfly.golden.memories import LocalMemory, memories
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.dma.chunks import LoadChunks, chunk_bytes, step_layout, transfer_nest

LOOPS = ("row", "fold", "piece")


@pytest.mark.parametrize("preset", SWEPT_PRESETS)
def test_plans(simulate, preset: str) -> None:
    simulate(LoadChunks(PRESETS[preset]), env={"PRESET": preset})


def random_transfer(config: Config, rng: np.random.Generator, number: int) -> dict[str, Any]:
    """A transfer to the feature memory, or one of a few units to another one; some pieces lie outside."""
    is_fill = bool(rng.random() < 0.3)
    memory = (
        LocalMemory.FEATURE
        if is_fill or rng.random() < 0.5
        else list(memories(config))[int(rng.integers(len(memories(config))))]
    )
    most = config.array.lanes if is_fill else chunk_bytes(memory, config)
    unit = 1 if memory is LocalMemory.FEATURE else memory.write_bytes(config.array.lanes)
    size = unit * int(rng.integers(1, 1 + max(40 // unit, 2)))
    # Somewhere, around the last byte of the memory, and where addresses end.
    limit = config.size_bytes(memory)
    start = [int(rng.integers(limit)), limit - size + int(rng.integers(-1, 2)) * unit, (1 << 24) - unit][number % 3]
    counts = {loop: int(rng.integers(1, 4)) for loop in LOOPS} if number else dict.fromkeys(LOOPS, 1)
    bits = {"local": 24, "offset": transfer_nest(config).pointers["offset"]}
    return {
        "count": counts,
        "start": {"local": start // unit * unit, "offset": int(rng.integers(1 << bits["offset"]))},
        "pitch": {
            "local": {loop: unit * int(rng.integers(4 * size // unit)) for loop in LOOPS},
            "offset": {"row": int(rng.integers(1 << bits["offset"])), "fold": 1, "piece": 0},
        },
        "context": {
            "index": number,
            "is_fill": int(is_fill),
            "value": int(rng.integers(256)),
            "memory": memory,
            "last_byte": size - 1,
            "chunk_bytes": most,
            "chunks_left": (size - 1) // most,
            "tail_bytes": (size - 1) % most + 1,
        },
    }


def planned(transfer: dict[str, Any], config: Config) -> Iterator[dict[str, int]]:
    """The steps of a transfer."""
    context, counts, beat = transfer["context"], transfer["count"], config.axi.data_bytes
    common = {name: context[name] for name in ("index", "is_fill", "value", "memory")}
    limit, is_load, at = config.size_bytes(context["memory"]), not context["is_fill"], 0
    for place in itertools.product(*(range(counts[loop]) for loop in LOOPS)):
        address, offset = (
            transfer["start"][name]
            + sum(index * transfer["pitch"][name][loop] for index, loop in zip(place, LOOPS, strict=True))
            for name in ("local", "offset")
        )
        address %= 1 << 24
        # Pieces of a run lie after one another in the beats.
        at = offset if place[-1] == 0 else at
        for left in range(context["last_byte"] + 1, 0, -context["chunk_bytes"]):
            count, first = min(left, context["chunk_bytes"]), at % beat
            is_last = left == count
            ends_run = is_last and place[-1] == counts["piece"] - 1
            crosses = first + count > beat
            flags = {
                "needs_beat": is_load,
                "crosses": is_load and crosses,
                "advances": is_load and (first + count >= beat or ends_run),
                "skips": is_load and ends_run and crosses,
                "out_of_range": address + context["last_byte"] >= limit,
                "last": is_last and all(index == counts[loop] - 1 for index, loop in zip(place, LOOPS, strict=True)),
            }
            moved = context["last_byte"] + 1 - left
            step = {"address": (address + moved) % (1 << 24), "count": count, "offset": first}
            yield common | step | {name: int(flag) for name, flag in flags.items()}
            at += count


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.4])
async def every_chunk(dut, p_stall: float) -> None:
    config, rng = PRESETS[os.environ["PRESET"]], np.random.default_rng(11)
    transfers = [random_transfer(config, rng, number) for number in range(60)]
    steps = [step for transfer in transfers for step in planned(transfer, config)]
    assert {step["out_of_range"] for step in steps} == {0, 1}
    nest, layout = transfer_nest(config).nest_layout, step_layout(config)
    await start(dut, {"transfers__valid": 0, "steps__ready": 0})
    monitor = StreamMonitor(dut.clk, dut, "steps", shape=layout)
    cocotb.start_soon(send(dut.clk, dut, "transfers", transfers, rng, p_stall, shape=nest))
    found = await receive(dut.clk, dut, "steps", len(steps), np.random.default_rng(12), p_stall, shape=layout)
    for number, (step, wanted) in enumerate(zip(found, steps, strict=True)):
        assert step == wanted, f"step {number}"
    assert monitor.words == steps
