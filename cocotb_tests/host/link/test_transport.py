"""The transport of a board: the driver over the bridge's twin, with a golden accelerator behind it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cocotb_tests.support.transports.bridge_line import Accelerator, BridgeLine, VirtualClock
from cocotb_tests.support.transports.golden_transport import GoldenTransport
from lutterfly.examples import digits
from lutterfly.golden import registers
from lutterfly.golden.config_parts import ArenaConfig
from lutterfly.golden.link.frames import Frame
from lutterfly.golden.link.operations import MAX_DATA, Operation, Status
from lutterfly.golden.presets import PRESETS
from lutterfly.host import InferenceSession
from lutterfly.host.driver.driver import HardwareError
from lutterfly.host.files.terminal import silent
from lutterfly.host.session.selftest import run
from lutterfly.host.transports.line import LinkError
from lutterfly.host.transports.link import LinkTransport, configuration_of

CONFIG = dataclasses.replace(PRESETS["tiny"], arena=ArenaConfig(8 << 10))


class GoldenBoard(Accelerator):
    """A golden accelerator whose arena is the board's."""

    def __init__(self) -> None:
        super().__init__(CONFIG.arena.on_chip_bytes)
        self.golden = GoldenTransport(CONFIG, arena_bytes=CONFIG.arena.on_chip_bytes, arena_base=0)
        self.golden.memory = np.frombuffer(self.arena, np.uint8)

    @property
    def interrupt(self) -> bool:
        """What waits for it does the run."""
        return self.golden.wait_for_interrupt(1)

    @interrupt.setter
    def interrupt(self, value: bool) -> None:
        """Nothing sets it from outside."""

    def read_register(self, address: int) -> tuple[int, bool]:
        return self.golden.read_register(address), True

    def write_register(self, address: int, value: int) -> bool:
        self.written.append((address, value))
        self.golden.write_register(address, value)
        return True


def opened(accelerator: Accelerator | None = None) -> tuple[LinkTransport, BridgeLine]:
    line = BridgeLine(VirtualClock(), accelerator)
    return LinkTransport(line, clock=line.clock), line


@pytest.mark.regress
def test_inference_over_a_line_that_loses_bytes() -> None:
    board = GoldenBoard()
    transport, line = opened(board)
    for faults in (line.to_board, line.to_host):
        faults.drop = faults.change = faults.insert = 5e-5
    session = InferenceSession(digits.model_path("qop"), CONFIG, transport)
    feeds = {session.get_inputs()[0].name: digits.images()[:8]}
    golden = InferenceSession(digits.model_path("qop"), CONFIG, backend="golden")
    np.testing.assert_array_equal(session.run(None, feeds)[0], golden.run(None, feeds)[0])
    assert line.to_board.count + line.to_host.count > 3
    assert transport.client.repeated > 0
    # Each start of a run once: windows, and inferences.
    starts = [value for address, value in board.written if address == registers.REGISTERS["CONTROL"].address]
    assert len(board.golden.starts) == starts.count(registers.CONTROL_START)


def test_memory_is_read_and_written_in_frames() -> None:
    transport, line = opened(Accelerator(8192))
    data = np.random.default_rng(0).bytes(3 * MAX_DATA + 5)
    before = len(line.executed)
    transport.write_memory(7, data)
    sent = [frame.operation for frame in line.executed[before:]]
    assert sent == [*4 * [Operation.WRITE], Operation.CHECKSUM]
    assert line.accelerator.arena[7 : 7 + len(data)] == data
    assert transport.read_memory(7, len(data)) == data
    for address, size in ((-1, 2), (8191, 2), (8192, 1)):
        with pytest.raises(ValueError, match=r"^address must be in the arena of 8192 bytes at 0x0, not"):
            transport.read_memory(address, size)
        with pytest.raises(ValueError, match=r"^address must be in the arena of 8192 bytes at 0x0, not"):
            transport.write_memory(address, bytes(size))


def test_a_faulty_memory_is_noticed() -> None:
    transport, line = opened(Accelerator(8192))
    arena, write = line.accelerator.arena, line.bridge._carry_out[Operation.WRITE]

    def write_wrong(request: Frame) -> tuple[Status, bytes]:
        found = write(request)
        arena[1000] = 4
        return found

    line.bridge._carry_out[Operation.WRITE] = write_wrong
    with pytest.raises(LinkError, match=r"^/dev/ttyTEST: 2000 bytes at 0x10 of the arena must have the checksum"):
        transport.write_memory(16, bytes(2000))
    line.bridge._carry_out[Operation.WRITE] = write
    transport.write_memory(16, bytes(2000))


@pytest.mark.parametrize("cycles", [1, 999_999, 1_000_000, 3_500_000])
def test_a_wait_is_as_long_as_asked_for(cycles: int) -> None:
    transport, line = opened()
    before = len(line.executed)
    assert not transport.wait_for_interrupt(cycles)
    waits = [frame.length for frame in line.executed[before:] if frame.operation == Operation.WAIT]
    assert sum(waits) == cycles
    assert max(waits) <= 1_000_000
    line.accelerator.interrupt = True
    assert transport.wait_for_interrupt(cycles)


def test_a_board_that_is_closed_is_at_the_initial_rate() -> None:
    transport, line = opened()
    assert transport.client.rate == 3_000_000
    transport.close()
    assert line.bridge.bit_time == line.bridge.initial_bit_time
    assert line.is_closed


def test_the_configuration_is_found_by_its_hash() -> None:
    for name, config in PRESETS.items():
        assert configuration_of(GoldenTransport(config)) == config, name
    other = GoldenTransport(PRESETS["tiny"])
    other.values["CONFIG_HASH"] = 7
    with pytest.raises(HardwareError, match=r"^CONFIG_HASH must be a preset's, and 0x00000007 is of none; give the"):
        configuration_of(other)
    other.values["ID"] = 1
    with pytest.raises(HardwareError, match=r"^ID must be 0x4654554c, not 0x00000001: the board holds something else$"):
        configuration_of(other)


def test_a_selftest_of_another_configuration_writes_nothing() -> None:
    transport, line = opened(GoldenBoard())
    with pytest.raises(HardwareError, match=r"^CONFIG_HASH must be .*; name the configuration that the hardware"):
        run(transport, PRESETS["ecp5-25k-on-chip"], 1, silent)
    assert not {Operation.WRITE, Operation.WRITE_REGISTER} & {frame.operation for frame in line.executed}


def test_damage_is_refused() -> None:
    transport, line = opened()
    assert transport.client.refuses_damage()
    line.bridge.receive = lambda data: b""
    with pytest.raises(LinkError):
        transport.client.refuses_damage()
