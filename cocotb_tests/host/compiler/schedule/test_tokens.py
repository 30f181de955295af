"""Tokens: a command waits for what it depends on and no more, and what is compared stays until then."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.oracles.exactness import needs_reference
from cocotb_tests.support.quantised.graphs import plan_of
from lutterfly.golden.engines import BINARY_MAXIMUM, MAXIMUM, find_engine
from lutterfly.golden.isa import Barrier, Load, Store
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.presets import PRESETS
from lutterfly.host import compiler
from lutterfly.host.compiler.network import Network
from lutterfly.host.compiler.operation import Command
from lutterfly.host.compiler.plan import Ordered, Plan
from lutterfly.host.compiler.schedule import tokens
from lutterfly.host.compiler.storage import NO_ADDRESSES, Addresses
from lutterfly.host.frontend import import_model
from lutterfly.host.graph import Graph
from lutterfly.host.session.verify import verify

A, B, C = (np.arange(start, start + 8) for start in (0, 8, 16))


def synchronised(
    *commands: Command,
    compared: Mapping[Command, np.ndarray] | None = None,
    streamed: bytes = b"",
    monkeypatch: pytest.MonkeyPatch,
) -> list[tuple[bool, int | None, int]]:
    """What each waits for: whether for all before it in its queue, and which of the other; and its signals."""
    network = Network(Graph({}, [], [], []), PRESETS["tiny"])
    known = {"images": {}, "streamed": streamed, "streamed_address": 0, "commands": commands, "computes": ()}
    monkeypatch.setattr(tokens, "observations", lambda plan: compared or {})
    found = tokens.synchronise(plan_of(Ordered, network, **known)).commands
    return [(command.after, command.waits_for, command.signal) for command in found]


def load(writes: np.ndarray) -> Command:
    return Command(Load(), writes=writes)


def store(reads: np.ndarray) -> Command:
    return Command(Store(), reads=reads)


def compute(reads: np.ndarray, writes: np.ndarray, times: int = 1, engine: int = MAXIMUM) -> Command:
    """A copy of eight bytes, in two words of the smallest preset, so many times."""
    fields = {"engine": engine, "outer": times, "middle": 1, "inner": 2, "steps": 1, "lanes": 4, "last_lanes": 4}
    fields |= {"source": int(reads[0]), "source_inner": 4, "destination": int(writes[0]), "destination_inner": 4}
    return Command(find_engine(engine).format.kind(**fields), reads=reads, writes=writes)


def test_results_of_the_first_command_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found = synchronised(compute(A, B), compute(A, C), compute(B, A), monkeypatch=monkeypatch)
    assert found == [(False, None, 0), (False, None, 0), (True, None, 0)]


def test_results_that_landed_long_ago_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each window's results take four cycles, and nothing of this core takes more than a hundred."""
    found = synchronised(compute(A, B), compute(A, C, times=25), compute(B, A), monkeypatch=monkeypatch)
    assert [after for after, _, _ in found] == [False, False, False]
    # The last one waits for what the one before it writes, so it needs not wait for the first.
    found = synchronised(compute(A, B), compute(A, C, times=25), compute(C, A), monkeypatch=monkeypatch)
    assert [after for after, _, _ in found] == [False, False, True]


def test_where_the_engine_changes_the_hardware_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    found = synchronised(compute(A, B), compute(B, C, engine=BINARY_MAXIMUM), monkeypatch=monkeypatch)
    assert [after for after, _, _ in found] == [False, False]


def test_a_word_may_hold_bytes_that_have_not_landed_and_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = dataclasses.replace(compute(B, C).fields, inner=1, source=5)
    narrow, others = (Command(fields, reads=np.arange(5, end), writes=C) for end in (8, 9))
    assert [after for after, _, _ in synchronised(compute(A, B), narrow, monkeypatch=monkeypatch)] == [False, False]
    assert [after for after, _, _ in synchronised(compute(A, B), others, monkeypatch=monkeypatch)] == [False, True]


@pytest.mark.parametrize(("offset", "waits"), [(0, False), (8, True)])
def test_a_list_that_comes_in_every_inference_says_what_is_read(
    offset: int, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = Load(memory=LocalMemory.LIST, external=12, piece_bytes=4, local=20)
    other = Command(dataclasses.replace(compute(A, C).fields, list=5), reads=np.concatenate([A, B]), writes=C)
    streamed = bytes(12) + np.uint32(offset).tobytes()
    found = synchronised(Command(fields), compute(A, B), other, streamed=streamed, monkeypatch=monkeypatch)
    assert [after for after, _, _ in found] == [False, False, waits]


def test_who_waits_knows_what_has_been_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    # The second LOAD writes where the first did, which is done: the array has waited for it.
    found = synchronised(load(A), compute(A, B), load(A), store(B), monkeypatch=monkeypatch)
    assert found == [(False, None, 1), (False, 0, 1), (False, 0, 0), (False, None, 0)]
    # Nobody has waited for the first one here.
    found = synchronised(load(A), load(A), monkeypatch=monkeypatch)
    assert found == [(False, None, 0), (True, None, 0)]


def barrier() -> Command:
    return Command(Barrier(group=3))


def test_what_stands_behind_a_barrier_need_not_wait_for_what_stands_before(monkeypatch: pytest.MonkeyPatch) -> None:
    found = synchronised(store(A), load(A), barrier(), load(A), monkeypatch=monkeypatch)
    assert found == [(False, None, 0), (False, None, 0), (False, None, 0), (False, None, 0)]
    # The array waits for the LOAD behind the barrier, and so knows that the one before it is complete.
    found = synchronised(load(A), barrier(), load(B), compute(B, C), compute(A, C), monkeypatch=monkeypatch)
    assert found == [(False, None, 0), (False, None, 0), (False, None, 1), (False, 2, 0), (False, None, 0)]


def test_a_command_waits_for_the_one_that_it_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = store(A)
    following = dataclasses.replace(compute(B, C), follows=stored)
    assert synchronised(stored, following, monkeypatch=monkeypatch) == [(False, None, 1), (False, 0, 0)]


def test_what_is_compared_is_not_overwritten_before_it_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """No layer reads it, and a core that is done with it may use its place at once."""
    commands = [compute(A, B), compute(A, C), compute(A, B)]
    found = synchronised(*commands, compared={commands[1]: np.concatenate([B, C])}, monkeypatch=monkeypatch)
    assert found == [(False, None, 0), (False, None, 0), (True, None, 0)]
    others = compute(A, B), compute(A, C), compute(A, B)
    assert synchronised(*others, monkeypatch=monkeypatch) == [(False, None, 0)] * 3
    # What was complete long ago has been compared.
    later = compute(A, B), compute(A, C, times=25), compute(A, B)
    found = synchronised(*later, compared={later[0]: B}, monkeypatch=monkeypatch)
    assert found == [(False, None, 0)] * 3


# What verification compares stays until it has been compared, even bytes that no layer reads.

TINY = PRESETS["tiny"]


def sliced() -> bytes:
    """A first layer in two commands, of whose six channels one is read; another layer's border lies over the others."""
    rng, constants, nodes = np.random.default_rng(598), [], []

    def constant(value: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value), f"c{len(constants)}"))
        return constants[-1].name

    def convolution(source: str, output: str, shape: tuple[int, ...], scale: float, zero_point: int, **given) -> None:
        weights = constant(rng.integers(-127, 128, shape).astype(np.int8))
        ends = [constant(value) for value in (np.float32(scale), np.int8(zero_point), np.float32(0.01), np.int8(0))]
        result = [constant(np.float32(0.05)), constant(np.int8(3))]
        operands = [source, *ends[:2], weights, *ends[2:], *result]
        nodes.append(helper.make_node("QLinearConv", operands, [output], output, **given))

    convolution("x", "a", (6, 2, 1, 1), 0.05, 3, strides=[2, 2])
    begin, end, axis = (constant(np.array([value])) for value in (2, 3, 1))
    nodes.append(helper.make_node("Slice", ["a", begin, end, axis], ["b"], "slice"))
    convolution("b", "d", (6, 1, 3, 3), 0.05, 3)
    scales = [constant(value) for value in (np.float32(0.05), np.int8(3), np.float32(0.04), np.int8(-5))]
    leaky = helper.make_node("QLinearLeakyRelu", ["d", *scales], ["e"], "leaky", domain="com.microsoft", alpha=0.1)
    nodes.append(leaky)
    convolution("e", "f", (2, 6, 3, 3), 0.04, -5, pads=[1] * 4)
    convolution("f", "g", (2, 2, 3, 3), 0.05, 3, pads=[1] * 4)
    convolution("g", "y", (8, 2, 3, 3), 0.05, 3, pads=[1] * 4)
    x = helper.make_tensor_value_info("x", TensorProto.INT8, ["n", 2, 10, 32])
    y = helper.make_tensor_value_info("y", TensorProto.INT8, ["n", 8, 3, 14])
    graph = helper.make_graph(nodes, "sliced", [x], [y], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


@needs_reference
def test_bytes_that_nobody_reads_are_compared_before_they_are_overwritten() -> None:
    found = verify(sliced(), TINY, samples=6)
    assert {tensor.name: (tensor.machine, tensor.rtl) for tensor in found.tensors}["a"] == (0, 0)
    assert found.is_right


def test_the_compiler_notices_what_is_overwritten_before(monkeypatch: pytest.MonkeyPatch) -> None:
    # Tokens are given first, and then the deadlock check sees whether they are enough: only the first is blind.
    taken = itertools.cycle([lambda plan: dict.fromkeys(plan.commands, NO_ADDRESSES), tokens.observations])

    def observations(plan: Plan) -> dict[Command, Addresses]:
        return next(taken)(plan)

    monkeypatch.setattr(tokens, "observations", observations)
    with pytest.raises(AssertionError, match=r"overwrites what is compared after COMPUTE \d+$"):
        compiler.compile_graph(import_model(sliced(), "sliced"), TINY)
