"""The order of transfers: what reads the feature memory waits apart from what writes it."""

from __future__ import annotations

import pytest

from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import plan_graph
from lutterfly.host.compiler.schedule import dma
from lutterfly.host.graph import Window


def test_stores_wait_apart_from_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    choose, waiting = dma._next, {"loads": [], "stores": []}

    def watch(loads: list, stores: list, queue: object, job: int) -> list | None:
        for name, heap in (("loads", loads), ("stores", stores)):
            waiting[name] += [task.is_store for *_, task in heap]
        return choose(loads, stores, queue, job)

    monkeypatch.setattr(dma, "_next", watch)
    maker = GraphMaker((24, 24, 16))
    name = maker.convolution(maker.convolution("x", 16, Window((3, 3))), 16, Window((3, 3)))
    assert plan_graph(maker.finish(name), PRESETS["tiny"]).cuts
    assert waiting["loads"]
    assert waiting["stores"]
    assert not any(waiting["loads"])
    assert all(waiting["stores"])
