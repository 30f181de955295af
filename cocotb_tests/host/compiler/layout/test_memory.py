"""Networks whose tensors are more than the feature memory: spilled, in parts, and still the bytes of the reference."""

from __future__ import annotations

import dataclasses
import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cocotb_tests.support.networks.families import network
from cocotb_tests.support.oracles.execution import differing_bytes, exact_plan
from cocotb_tests.support.quantised.graphs import GraphMaker
from cocotb_tests.support.tiers import sweep
from lutterfly.golden.isa import Opcode
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import encode, plan_graph
from lutterfly.host.compiler.layout import memory
from lutterfly.host.compiler.layout.cuts import Geometry
from lutterfly.host.compiler.layout.placement import extent, fit, free, place
from lutterfly.host.compiler.layout.spilling import Spilling
from lutterfly.host.compiler.operation import Cut
from lutterfly.host.frontend import import_model
from lutterfly.host.graph import Graph, Window

TINY = PRESETS["tiny"]
SAME = Window((3, 3), pads=(1, 1, 1, 1))
HALF = Window((3, 3), (2, 2), pads=(0, 0, 1, 1))
POINT = Window((1, 1))


def chain() -> Graph:
    """Every kind of layer on maps of 16 KiB and less."""
    maker = GraphMaker((32, 32, 16))
    name = maker.convolution(maker.convolution("x", 16, SAME), 24, HALF, table=True)
    name = maker.max_pool(name, Window((3, 3), (2, 2), pads=(1, 0, 1, 1)))
    return maker.finish(maker.convolution(maker.pointwise(name), 10, POINT))


def long_lived() -> Graph:
    """A tensor that is read again when larger ones have been there in between."""
    maker = GraphMaker((16, 16, 4), zero_point=-9)
    first = maker.convolution("x", 4, SAME)
    name = maker.convolution(maker.convolution(first, 13, SAME), 13, SAME)
    return maker.finish(maker.max_pool(name, SAME), maker.convolution(first, 6, Window((2, 2), (2, 2))))


def wide() -> Graph:
    """Not even a row with all channels fits."""
    maker = GraphMaker((5, 90, 24))
    return maker.finish(maker.convolution("x", 40, Window((3, 5), (1, 1), (2, 3), pads=(2, 6, 2, 6))))


def folded() -> Graph:
    """An input that is worth to be folded, and too large to be whole."""
    maker = GraphMaker((60, 50, 3), zero_point=5)
    return maker.finish(maker.convolution("x", 6, Window((5, 3), (2, 1), pads=(2, 1, 2, 1))))


def alike() -> Graph:
    """A part of the input is as large as one of the output."""
    maker = GraphMaker((32, 32, 16))
    return maker.finish(maker.convolution("x", 16, POINT))


@pytest.mark.regress
@pytest.mark.parametrize("make", sweep([chain, long_lived, wide, folded], kept=[chain, long_lived, folded]))
def test_networks_larger_than_the_memory_are_exact(make) -> None:
    plan = exact_plan(make(), TINY)
    assert plan.cuts


@pytest.mark.regress
@pytest.mark.parametrize("seed", sweep(range(6), kept=range(2)))
def test_layers_whose_channels_are_apart_load_some_of_them_at_a_time(seed: int) -> None:
    """The window of a pixel is more than the memory, with all channels."""
    rng = np.random.default_rng(seed)
    sides = tuple(int(n) for n in rng.integers(3, 8, 2))
    kernel = tuple(int(rng.integers(3, side + 1)) for side in sides)
    channels = TINY.memory.feature_bytes // (kernel[0] * kernel[1]) + int(rng.integers(1, 100))
    maker = GraphMaker((*sides, channels), seed=seed)
    if seed % 3 == 0:
        kernel = sides
        name = maker.global_average("x")
    else:
        pads = tuple(int(n) for n in rng.integers(0, 3, 4))
        window = Window(kernel, tuple(int(n) for n in rng.integers(1, 3, 2)), pads=pads)
        make = maker.average_pool if seed % 3 == 1 else maker.depthwise
        name = make("x", window, table=bool(rng.integers(2)))
    plan = exact_plan(maker.finish(maker.convolution(name, 3, POINT)), TINY)
    cut, _ = plan.cuts[0]
    assert cut.tiles < plan.operations[0].tiles


@pytest.mark.regress
def test_the_same_network_gives_the_same_program_in_every_process() -> None:
    """Python draws anew, in each, in which order the elements of a set come."""
    script = (
        "from test_memory import TINY, alike; from lutterfly.host.compiler import compile_graph; "
        "import hashlib; print(hashlib.sha256(compile_graph(alike(), TINY).to_bytes()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            check=True,
            capture_output=True,
            text=True,
            cwd=Path(__file__).parent,
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": os.pathsep.join(sys.path)},
        ).stdout
        for seed in range(4)
    }
    assert len(digests) == 1


@pytest.mark.regress
def test_a_tensor_that_is_read_again_later_stays_until_its_place_is_needed() -> None:
    plan = exact_plan(long_lived(), TINY)
    assert plan.spans["t0"] == (0, 1)
    assert plan.cuts.keys() == {4}
    assert "t0" in plan.external


def test_tensors_stay_in_the_memory_if_they_fit() -> None:
    plan = plan_graph(chain(), PRESETS["ecp5-85k"])
    assert not plan.cuts
    assert plan.spans.keys() == {"x", "t0", "t1", "t2", "t3", "t4"}


@pytest.mark.regress
@pytest.mark.parametrize("weight_bytes", sweep([2048, 16384], kept=[2048]))
def test_where_weights_are_loaded_for_each_part_the_output_is_in_blocks_of_channels(weight_bytes: int) -> None:
    """Only a layer whose input and output are both in parts has blocks, whose weights are loaded once."""
    maker = GraphMaker((6, 6, 16))
    graph = maker.finish(maker.convolution(maker.convolution("x", 32, SAME), 8, SAME))
    memory = dataclasses.replace(TINY.memory, feature_bytes=1024, weight_bytes=weight_bytes)
    plan = exact_plan(graph, dataclasses.replace(TINY, memory=memory))
    assert set(plan.spans) == ({"x"} if weight_bytes == 2048 else {"x", *graph.outputs})


def test_a_view_lies_where_its_channels_do() -> None:
    # The input is larger, and lies first.
    maker = GraphMaker((5, 5, 40))
    parts = [maker.convolution("x", 16, POINT) for _ in range(2)]
    plan = plan_graph(maker.finish(maker.convolution(maker.concat(*parts), 4, POINT)), TINY)
    assert plan.views
    for name, (whole, first, row, *_) in plan.views.items():
        channels = plan.graph.tensors[name].shape[2]
        assert row == 0
        there = plan.storages[whole].addresses(channels=range(first, first + channels))
        np.testing.assert_array_equal(plan.storages[name].addresses(), there)
        assert plan.storages[whole].address > 0


def test_outputs_leave_before_a_tensor_is_spilled() -> None:
    maker = GraphMaker((20, 20, 8))
    first = maker.pointwise("x")
    graph = maker.finish(first, maker.max_pool(first, Window((2, 2), (2, 2))), maker.convolution("x", 12, HALF))
    assert exact_plan(graph, TINY).spans.keys() >= {"t1", "t2"}


def test_borders_that_are_still_there_are_not_filled_again() -> None:
    maker = GraphMaker((64, 16, 8))
    plan = exact_plan(maker.finish(maker.convolution("x", 8, SAME)), TINY)
    parts = [live_range for live_range in plan.live_ranges if live_range.arrivals]
    assert len(parts) > 4
    # Above the first part, beside the parts in either buffer, below the last part.
    fills = [command for command in plan.commands if command.opcode is Opcode.FILL]
    assert len(fills) <= 1 + 2 * 3 + 1


@pytest.mark.sampled(18)
@pytest.mark.parametrize("seed", range(40))
def test_parts_hold_what_their_windows_read(seed: int) -> None:
    """The rows, columns and borders of a part, against those of a padded map."""
    rng = np.random.default_rng(seed)
    height, width = (int(n) for n in rng.integers(8, 14, 2))
    kernel, stride, dilation, pads = (
        tuple(int(n) for n in rng.integers(low, high, size))
        for low, high, size in ((1, 5, 2), (1, 4, 2), (1, 3, 2), (0, 5, 4))
    )
    window = Window(kernel, stride, dilation, pads)
    maker = GraphMaker((height, width, 2))
    plan = plan_graph(maker.finish(maker.convolution(maker.pointwise("x"), 3, window)), PRESETS["large"])
    cut = Cut(int(rng.integers(1, 5)), int(rng.integers(1, 5)), 1, 2)
    geometry = Geometry(plan, 1, cut, frozenset({"t0", "t1"}))
    for rows, columns in itertools.product(geometry.rows, geometry.columns):
        part = geometry.source(0, rows, columns, range(1))
        top = rows[0] * stride[0] - pads[0], rows[-1] * stride[0] - pads[0] + window.extent[0]
        left = columns[0] * stride[1] - pads[1], columns[-1] * stride[1] - pads[1] + window.extent[1]
        assert (part.row - part.top, part.row + part.height + part.bottom) == top
        assert (part.column - part.left, part.column + part.width + part.right) == left
        assert part.height == sum(0 <= row < height for row in range(*top))
        assert part.width == sum(0 <= column < width for column in range(*left))
        assert part.size_bytes <= geometry.buffers()["t0"][0]


@pytest.mark.parametrize("seed", range(20))
def test_parts_of_max_pooling_have_no_border(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = height, width = tuple(int(n) for n in rng.integers(3, 14, 2))
    kernel, stride, dilation, pads = (
        tuple(int(n) for n in rng.integers(low, high, shape))
        for low, high, shape in ((1, 4, 2), (1, 4, 2), (1, 3, 2), (0, 5, 4))
    )
    window = Window(kernel, stride, dilation, pads)
    if min(window.output_size(*size)) < 1:
        return
    maker = GraphMaker((*size, 2))
    plan = plan_graph(maker.finish(maker.max_pool(maker.pointwise("x"), window)), PRESETS["large"])
    geometry = Geometry(plan, 1, Cut(int(rng.integers(1, 5)), int(rng.integers(1, 5)), 1, 2), frozenset({"t0", "t1"}))
    for rows, columns in itertools.product(geometry.rows, geometry.columns):
        part = geometry.source(0, rows, columns, range(1))
        assert (part.top, part.left, part.bottom, part.right) == (0, 0, 0, 0)
        down, across = (
            {at * step - before + tap * apart for at in outputs for tap in range(taps)} & {*range(limit)}
            for outputs, step, before, taps, apart, limit in zip(
                (rows, columns), stride, pads, kernel, dilation, (height, width), strict=False
            )
        )
        assert down <= {*part.rows}
        assert across <= {*part.columns}
        assert part.size_bytes <= geometry.buffers()["t0"][0]


def test_gaps_are_filled_largest_piece_first() -> None:
    gaps = free([(16, 32), (0, 4), (40, 64)], 64)
    assert gaps == [(4, 16), (32, 40)]
    assert fit({"a": [4, 4], "b": [8, 0]}, gaps, 4) == {"b": (4, 12), "a": (12, 32)}
    assert fit({"a": [9, 9]}, gaps, 4) is None


def test_placement_lets_nothing_overlap_in_time_and_space() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        starts = rng.integers(0, 10, 12)
        spans = {i: (int(start), int(start + rng.integers(0, 4))) for i, start in enumerate(starts)}
        sizes = {i: int(rng.integers(1, 50)) for i in spans}
        addresses = place(spans, sizes, 8)
        for one, other in itertools.combinations(spans, 2):
            if spans[one][0] <= spans[other][1] and spans[other][0] <= spans[one][1]:
                assert (
                    addresses[one] + sizes[one] <= addresses[other] or addresses[other] + sizes[other] <= addresses[one]
                )
        assert extent(addresses, sizes) >= max(sizes.values())


@pytest.mark.regress
def test_what_needs_the_most_may_have_nothing_left_to_give():
    """All of its tensors are in parts already, and elsewhere gaps between what stays are too small."""
    found = network(590)
    graph = import_model(found.model)
    assert differing_bytes(graph, encode(plan_graph(graph, found.config)), found.config, order="random") == 0


def test_a_tensor_whose_buffer_is_as_large_is_not_given_up():
    """Of a map of one pixel a part is all, and what is left out of the memory needs its border all the same."""
    maker, large = GraphMaker((1, 1, 4)), Window((5, 5), pads=(2, 2, 2, 2))
    graph = maker.finish(maker.convolution(maker.convolution("x", 8, large), 4, large))
    config = dataclasses.replace(TINY, memory=dataclasses.replace(TINY.memory, feature_bytes=256))
    assert exact_plan(graph, config).spans.keys() == {"x", "t1"}


# What is kept while tensors are spilled one by one is what placing all of them anew gives.


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
