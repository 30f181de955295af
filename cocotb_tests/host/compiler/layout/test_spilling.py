"""What is kept while tensors are spilled one by one is what placing all of them anew gives."""

from __future__ import annotations

import pytest

from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import plan_graph
from lutterfly.host.compiler.layout import memory
from lutterfly.host.compiler.layout.spilling import Spilling
from lutterfly.host.graph import Window

SAME = Window((3, 3), pads=(1, 1, 1, 1))


class Checked(Spilling):
    """Compares all with a computation anew: whenever the stay of a tensor changes, and for changes at the end."""

    changed = compared = 0

    def _accept(self, *args, **options) -> None:
        super()._accept(*args, **options)
        self.check_needs()
        Checked.changed += 1

    def check_needs(self) -> None:
        for index in range(len(self.graph.layers)):
            whole = sum(self.sizes[name] for name, (first, last) in self.spans.items() if first <= index <= last)
            buffers = self._buffers(index, self.spans, whole)
            assert (self.whole[index], self.buffers[index]) == (whole, buffers)
            assert self.need[index] == whole + sum(buffers.values())
        assert self.over == {index for index, need in enumerate(self.need) if need > self.memory}

    def settle(self):
        found = super().settle()
        for name in self.full:
            for span in (self.full[name], *(self._shorter(name, index) for index in range(len(self.graph.layers)))):
                if span is not None or name in self.spans:
                    self.check_change(name, span)
        return found

    def check_change(self, name: str, span: tuple[int, int] | None) -> None:
        change = self._change(name, span)
        after = self._beyond_after(change, last=False)
        spans = {other: stay for other, stay in (self.spans | {name: span}).items() if stay is not None}
        assert after == self._beyond(*self._items(spans, spans, self.buffers | change.buffers))
        Checked.compared += any(after)


def test_what_is_kept_is_what_placing_all_anew_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps that are more than the memory, then maps of which it holds a few."""
    monkeypatch.setattr(memory, "Spilling", Checked)
    maker = GraphMaker((24, 24, 3))
    name = kept = maker.convolution("x", 16, SAME)
    for _ in range(4):
        name = maker.convolution(name, 16, SAME)
    name = maker.max_pool(maker.add(name, kept), Window((2, 2), (2, 2)))
    for _ in range(4):
        name = maker.add(maker.convolution(name, 16, SAME), name)
    plan_graph(maker.finish(name), PRESETS["tiny"])
    assert Checked.changed > 3
    assert Checked.compared > 3, "changes with which something lies beyond the memory"
