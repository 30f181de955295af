"""Views of commands against golden.isa, and which of several errors is kept."""

from __future__ import annotations

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator, SimulatorContext

from lutterfly.golden import isa
from lutterfly.golden.units import ErrorCode, Unit
from lutterfly.hdl.parts.isa import ErrorReport, command_shape, is_beyond, report_error, report_first, view

FORMATS = [isa.SYNC, isa.LOAD, isa.STORE, isa.FILL, isa.COMPUTE]


def drawn(fmt: isa.Format, rng: np.random.Generator) -> dict[str, int]:
    """A value for every field, the least and the greatest among them."""
    values = {}
    for field in fmt.fields:
        low, high = field.limits
        values[field.name] = [low, high, int(rng.integers(max(low, -(1 << 30)), min(high, 1 << 30) + 1))][
            rng.integers(3)
        ]
    return values


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.opcode.name)
def test_a_view_reads_what_was_encoded(fmt: isa.Format) -> None:
    rng = np.random.default_rng(1)
    word = Signal(isa.COMMAND_BITS)
    commands = [drawn(fmt, rng) for _ in range(20)]

    async def bench(context: SimulatorContext) -> None:
        for values in commands:
            context.set(word, int.from_bytes(fmt.encode(**values), "little"))
            found = {name: context.get(view(fmt, word)[name]) for name in values}
            assert found == values
            assert context.get(view(fmt, word).opcode) == fmt.opcode

    simulator = Simulator(Module())
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.opcode.name)
def test_a_decoded_command_has_the_fields_after_the_header(fmt: isa.Format) -> None:
    names = [name for name, _ in command_shape(fmt)]
    assert names == ["index", "after", *(field.name for field in fmt.fields if field.lsb >= 32)]


def test_the_first_error_is_kept_and_of_several_the_latest_stage() -> None:
    m = Module()
    error, failed = Signal(ErrorReport), Signal()
    raised = [Signal(name=f"raised_{number}") for number in range(2)]
    problems = [Signal(ErrorReport, name=f"problem_{number}") for number in range(2)]
    for number, problem in enumerate(problems):
        with m.If(raised[number]):
            m.d.comb += report_error(problem, ErrorCode.ADDRESS_RANGE, Unit.LOAD, 5 + number, 0x100 * number)
    report_first(m, error, problems, failed)

    def once(*wanted: list[int]) -> list[tuple[int, int, int]]:
        """What is reported in each cycle: whether, the index, the address."""
        found = []

        async def bench(context: SimulatorContext) -> None:
            for values in wanted:
                for signal, value in zip(raised, values, strict=True):
                    context.set(signal, value)
                await context.tick()
                found.append(tuple(context.get(error[name]) for name in ("valid", "index", "address")))

        simulator = Simulator(m)
        simulator.add_clock(1e-6)
        simulator.add_testbench(bench)
        simulator.run()
        return found

    assert once([0, 0], [1, 0])[1] == (1, 5, 0)
    assert once([1, 1])[0] == (1, 6, 0x100)
    # Only the first one is valid; and for one cycle.
    assert [valid for valid, _, _ in once([1, 0], [0, 0], [0, 1], [1, 1])] == [1, 0, 0, 0]


@pytest.mark.parametrize("size", [1, 2, 64, 1 << 10])
def test_a_place_beyond_a_memory(size: int) -> None:
    place = Signal(10)

    async def bench(context: SimulatorContext) -> None:
        for value in range(1 << len(place)):
            context.set(place, value)
            assert context.get(is_beyond(place, size)) == (value >= size)

    simulator = Simulator(Module())
    simulator.add_testbench(bench)
    simulator.run()
