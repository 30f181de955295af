"""The link to a board against the bridge's twin: what its client asks for is done once and in time, or it says so."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cocotb_tests.support.transports.bridge_line import Accelerator, BridgeLine, VirtualClock
from cocotb_tests.support.transports.golden_transport import GoldenTransport
from lutterfly.examples import digits
from lutterfly.golden import registers
from lutterfly.golden.config_parts import ArenaConfig
from lutterfly.golden.link.frames import INITIAL_RATE, RATE_TIMEOUT_S, Frame, Identity, pack_word, parse_word
from lutterfly.golden.link.operations import LINK_VERSION, MAX_DATA, QUEUE_BYTES, Operation, Status
from lutterfly.golden.machine.flights import MachineError
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.stages import stages
from lutterfly.golden.units import ErrorCode, Unit
from lutterfly.host import InferenceSession
from lutterfly.host.driver.driver import AcceleratorError, HardwareError
from lutterfly.host.files.terminal import silent
from lutterfly.host.session.loading import LoadedProgram
from lutterfly.host.session.selftest import run
from lutterfly.host.transports.line import LinkError, _most_rate, _reason
from lutterfly.host.transports.link import RATES, Client, LinkTransport, configuration_of, identity, result

#: Seconds that any request may take, and any connection, at the initial rate with all that can go wrong.
REQUEST_S, CONNECT_S = 12.0, 20.0


def connected(line: BridgeLine, wanted: tuple[int, ...] = RATES) -> Client:
    client = Client(line, clock=line.clock)
    client.connect(wanted)
    return client


def test_says_who_is_there() -> None:
    line = BridgeLine(VirtualClock(), Accelerator(8192))
    client = Client(line, clock=line.clock)
    found = client.connect()
    assert (found.clock_hz, found.arena_bytes, found.max_data) == (50_000_000, 8192, MAX_DATA)
    assert (client.rate, client.time_outs.slowness, client.repeated) == (INITIAL_RATE, 1.0, 0)


@pytest.mark.parametrize(
    ("best", "rate"), [(4_000_000, 3_000_000), (1_600_000, 1_500_000), (500_000, 460_800), (115_300, INITIAL_RATE)]
)
def test_goes_on_at_the_first_rate_that_the_cable_carries(best: int, rate: int) -> None:
    line = BridgeLine(VirtualClock())
    line.best_rate = best
    client = connected(line)
    assert client.rate == line.rate == rate
    assert line.clock.now < 30
    client.request(Operation.WRITE, 16, bytes(range(256)))
    assert line.accelerator.arena[16:272] == bytes(range(256))


@pytest.mark.parametrize("passages", [1, 2, 3])
def test_a_new_rate_of_which_the_answer_is_lost_is_found(passages: int) -> None:
    line = BridgeLine(VirtualClock())
    set_rate = line.bridge._carry_out[Operation.SET_RATE]

    def lose_the_answer(request: Frame) -> tuple[Status, bytes]:
        line.to_host.swallow, line.bridge._carry_out[Operation.SET_RATE] = passages, set_rate
        return set_rate(request)

    line.bridge._carry_out[Operation.SET_RATE] = lose_the_answer
    client = connected(line)
    assert client.rate == 3_000_000
    assert client.repeated > 0
    assert line.clock.now < 5


def test_rates_that_the_board_does_not_make_are_not_tried() -> None:
    line = BridgeLine(VirtualClock(), clock_hz=12_000_000)
    client = connected(line)
    assert client.rate == 1_500_000
    assert client.repeated == 0
    assert line.clock.now < 1


@pytest.mark.parametrize("pause", [0.0, 0.5, 1.5, 100.0])
def test_after_a_pause_the_rate_is_agreed_on_again(pause: float) -> None:
    line = BridgeLine(VirtualClock())
    client = connected(line)
    line.clock.now += pause
    begin = line.clock.now
    client.request(Operation.WRITE_REGISTER, 8, pack_word(77))
    assert line.accelerator.written == [(8, 77)]
    assert client.rate == 3_000_000
    assert line.clock.now - begin < 0.1


def test_a_client_that_follows_a_dead_one_finds_the_board() -> None:
    """In the middle of a frame, at a rate that nobody else knows."""
    line = BridgeLine(VirtualClock())
    connected(line)
    line.write(b"\x05\x01\x02")
    line.set_rate(INITIAL_RATE)
    begin = line.clock.now
    client = connected(line)
    assert client.rate == 3_000_000
    assert line.clock.now - begin < RATE_TIMEOUT_S + 1


def test_a_slow_board_gets_more_time() -> None:
    """As a simulated one: its seconds are long."""
    line = BridgeLine(VirtualClock(), slowness=100)
    client = connected(line)
    assert client.time_outs.slowness > 100
    assert client.repeated == 0
    for size in (1, MAX_DATA):
        client.request(Operation.WRITE, 0, bytes(size))
    assert client.repeated == 0
    line.clock.now += 20
    client.request(Operation.WRITE, 0, b"a")
    assert client.repeated == 0


@pytest.mark.parametrize("where", ["to_board", "to_host"])
def test_what_is_lost_on_the_way_is_done_once(where: str) -> None:
    line = BridgeLine(VirtualClock())
    client = connected(line)
    for value in range(50):
        getattr(line, where).swallow = 1
        client.request(Operation.WRITE_REGISTER, 4, pack_word(value))
    assert line.accelerator.written == [(4, value) for value in range(50)]
    assert client.repeated == 50


@pytest.mark.parametrize(
    ("operation", "address", "data", "length", "message"),
    [
        (Operation.READ_REGISTER, 252, b"", 4, "refuses access to register 0xfc; generate the board's bitstream"),
        (Operation.READ, 4000, b"", 200, "has nothing at 0xfa0 for 200 bytes; generate"),
        (Operation.READ, 0, b"", 2000, "refuses a length of 2000 for READ; generate"),
        (Operation.SET_RATE, 0, pack_word(3), None, "refuses a rate that its clock can make; generate"),
    ],
)
def test_refusals_say_what_is_refused(
    operation: Operation, address: int, data: bytes, length: int | None, message: str
) -> None:
    client = connected(BridgeLine(VirtualClock()))
    with pytest.raises(LinkError, match=f"^/dev/ttyTEST: the board {message}"):
        client.request(operation, address, data, length)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (Status.UNKNOWN_OPERATION, "does not know the operation WAIT; generate"),
        (Status.SEQUENCE, "was asked by somebody else meanwhile; end other programs"),
        (99, "answers with the status 99; generate"),
    ],
)
def test_other_refusals_have_their_words(status: int, message: str) -> None:
    request = Frame(7, Operation.WAIT, length=5)
    with pytest.raises(LinkError, match=f"^port: the board {message}"):
        result("port", request, dataclasses.replace(request, status=status, length=0))


@pytest.mark.parametrize("version", [{"link_version": 1}, {"max_data": 512}, {"clock_hz": 0}])
def test_a_board_of_another_version_is_refused(version: dict[str, int]) -> None:
    right = Identity(LINK_VERSION, 50_000_000, 4096, MAX_DATA, 0)
    request = Frame(7, Operation.IDENTIFY)
    assert identity("port", request.answered(Status.OK, right.pack())) == right
    wrong = dataclasses.replace(right, **version).pack()
    for data in (wrong, wrong[:8]):
        with pytest.raises(LinkError, match=r"^port: the board must speak version 2 of the link, not [012]; generate"):
            identity("port", request.answered(Status.OK, data))


def test_a_silent_port_is_told_from_one_that_speaks_otherwise() -> None:
    line = BridgeLine(VirtualClock())
    line.pulled = True
    with pytest.raises(LinkError, match=r"^/dev/ttyTEST: a board must answer within 5 s, and does not; check"):
        connected(line)
    assert 4 <= line.clock.now < 5
    line = BridgeLine(VirtualClock())
    line.to_host.change = 1.0
    with pytest.raises(LinkError, match=r"^/dev/ttyTEST: a board must answer in frames at 115200 bits a second, and"):
        connected(line)
    assert line.clock.now < 5


def test_a_pulled_cable_ends_a_request() -> None:
    line = BridgeLine(VirtualClock())
    client = connected(line)
    line.pulled = True
    begin = line.clock.now
    with pytest.raises(LinkError, match=r"^/dev/ttyTEST: the board must answer within .* and does not, 6 times; check"):
        client.request(Operation.READ, 0, length=MAX_DATA)
    assert line.clock.now - begin < REQUEST_S
    line.pulled = False
    client.request(Operation.READ, 0, length=MAX_DATA)
    assert client.rate == 3_000_000


def test_a_transport_that_finds_no_board_lets_go_of_the_port() -> None:
    line = BridgeLine(VirtualClock())
    line.pulled = True
    with pytest.raises(LinkError):
        LinkTransport(line, clock=line.clock)
    assert line.is_closed


def sweep(frames: int, seed: int) -> tuple[int, int, int]:
    """Requests with bytes dropped, doubled, changed and inserted, and clients that die in between; how many frames,
    faults, and requests that were given up."""
    rng = np.random.default_rng(seed)
    line = BridgeLine(VirtualClock(), seed=seed)
    accelerator, arena = line.accelerator, bytearray(line.accelerator.arena)
    sent = given_up = 0
    client = None
    while sent < frames:
        if client is None or rng.random() < 0.01:
            if rng.random() < 0.5:
                line.write(rng.bytes(int(rng.integers(1, 40))))
            line.set_rate(INITIAL_RATE)
            begin = line.clock.now
            for faults in (line.to_board, line.to_host):
                chance = float(rng.choice([0, 1e-4, 1e-3, 3e-3]))
                faults.drop, faults.double, faults.change, faults.insert = rng.permutation([chance, chance, 0, chance])
            client = Client(line, clock=line.clock)
            try:
                client.connect(RATES)
            except LinkError:
                client = None
            assert line.clock.now - begin < CONNECT_S + 3 * len(RATES)
            continue
        begin, before = line.clock.now, len(accelerator.written)
        repeated = client.repeated
        kind, size = int(rng.integers(4)), int(rng.integers(1, 65))
        address = int(rng.integers(0, 4096 - size + 1))
        data = rng.bytes(size)
        try:
            if kind == 0:
                client.request(Operation.WRITE, address, data)
                arena[address : address + size] = data
            elif kind == 1:
                assert client.request(Operation.READ, address, length=size) == arena[address : address + size]
            elif kind == 2:
                client.request(Operation.WRITE_REGISTER, 4, pack_word(sent))
                assert accelerator.written[before:] == [(4, sent)]
            else:
                found = parse_word(client.request(Operation.READ_REGISTER, 4, length=4))
                assert found == accelerator.registers[4]
        except LinkError:
            # Nobody knows whether it was done; but not more than once.
            given_up += 1
            assert accelerator.written[before:] in ([], [(4, sent)])
            arena[:] = accelerator.arena
            client = None
        assert accelerator.arena == arena
        assert line.clock.now - begin < REQUEST_S + CONNECT_S
        sent += 1 + (client.repeated - repeated if client else 5)
    return sent, line.to_board.count + line.to_host.count, given_up


@pytest.mark.regress
def test_faults_on_the_line_change_no_result() -> None:
    sent, faults, given_up = sweep(5_000, seed=1)
    assert sent >= 5_000
    assert faults > 500
    assert given_up < 0.02 * sent


@pytest.mark.regress
@pytest.mark.parametrize("seed", range(5))
def test_faults_on_the_line_change_no_result_of_very_many(seed: int) -> None:
    sent, faults, given_up = sweep(20_000, seed=100 + seed)
    assert sent >= 20_000
    assert faults > 2_000
    assert given_up < 0.02 * sent


# The transport of a board: the driver over the bridge's twin, with a golden accelerator behind it.

CONFIG = dataclasses.replace(PRESETS["tiny"], arena=ArenaConfig(8 << 10))


#: What a run takes where it takes time.
RUN_S = 0.0005


class GoldenBoard(Accelerator):
    """A golden accelerator whose arena is the board's.

    Attributes
    ----------
    line : BridgeLine or None
        The line at which a run takes time.
    """

    def __init__(self) -> None:
        super().__init__(CONFIG.arena.on_chip_bytes)
        self.line: BridgeLine | None = None
        self.golden = GoldenTransport(CONFIG, arena_bytes=CONFIG.arena.on_chip_bytes, arena_base=0)
        self.golden.memory = np.frombuffer(self.arena, np.uint8)

    @property
    def interrupt(self) -> bool:
        """What waits for it does the run."""
        if self.line is not None:
            self.line.at += RUN_S
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


class OneLost:
    """Of what passes, the one of this number is lost or damaged."""

    def __init__(self, number: int, *, damages: bool):
        self.left, self.damages = number, damages

    def __call__(self, data: bytes) -> bytes:
        self.left -= bool(data)
        if self.left or not data:
            return data
        return bytes([data[0] ^ 1]) + data[1:] if self.damages else b""


@pytest.fixture(scope="module")
def logits() -> np.ndarray:
    golden = InferenceSession(digits.model_path("qop"), CONFIG, backend="golden")
    return golden.run(None, {"pixels": digits.images()[:4]})[0]


@pytest.fixture(scope="module")
def loaded() -> LoadedProgram:
    return InferenceSession(digits.model_path("qop"), CONFIG, backend="golden").loaded


def on_a_board(loaded: LoadedProgram, latency_s: float = 0.0) -> tuple[InferenceSession, BridgeLine, GoldenBoard]:
    """A session whose program is loaded."""
    board = GoldenBoard()
    transport, line = opened(board)
    board.line, line.latency_s = line, latency_s
    session = InferenceSession(loaded, CONFIG, transport)
    session.driver()
    return session, line, board


def test_inputs_are_on_the_way_while_the_core_works(loaded: LoadedProgram, logits: np.ndarray) -> None:
    session, line, board = on_a_board(loaded)
    rate = session.transport.client.rate
    taken = []
    # The first one writes the registers of a run as well.
    for count in (1, 1, 4):
        begin, line.sent, line.most_waiting = line.clock.now, 0, 0
        (found,) = session.run(None, {"pixels": digits.images()[:count]})
        np.testing.assert_array_equal(found, logits[:count])
        taken.append((line.clock.now - begin, line.sent * 10 / rate, line.most_waiting))
    _, (single, line_s, _), (batch, of_line_s, waiting) = taken
    assert of_line_s == pytest.approx(4 * line_s)
    assert single > line_s + RUN_S
    assert 64 <= waiting <= QUEUE_BYTES
    # The next input takes no time of its own.
    assert batch < 4 * single - 3 * 64 * 10 / rate
    assert len(board.golden.starts) == len(stages(session.program, CONFIG.arena.on_chip_bytes)) + 6


@pytest.mark.sampled(4)
@pytest.mark.parametrize("first", range(5))
@pytest.mark.parametrize("damages", [False, True], ids=["lost", "damaged"])
@pytest.mark.parametrize("where", ["to_board", "to_host"])
def test_a_fault_in_a_batch_changes_nothing(
    loaded: LoadedProgram, logits: np.ndarray, where: str, damages: bool, first: int
) -> None:
    """Whichever frame of two inferences it hits; each run is started once."""
    session, line, board = on_a_board(loaded, latency_s=0.001)
    for number in itertools.count(1 + first, 5):
        fault, starts, begin = OneLost(number, damages=damages), len(board.golden.starts), line.clock.now
        setattr(line, where, fault)
        (found,) = session.run(None, {"pixels": digits.images()[:2]})
        np.testing.assert_array_equal(found, logits[:2])
        assert len(board.golden.starts) == starts + 2
        assert line.clock.now - begin < 3
        if fault.left > 0:
            break
    assert number > 10


def test_an_error_of_the_core_in_a_batch_is_told(loaded: LoadedProgram, logits: np.ndarray) -> None:
    session, _, board = on_a_board(loaded, latency_s=0.001)
    feeds = [{"pixels": digits.images()[number : number + 1]} for number in range(4)]

    def inputs() -> Iterator[list[np.ndarray]]:
        for number, feed in enumerate(feeds):
            if number == 2:
                board.golden.next_error = MachineError(ErrorCode.WATCHDOG, Unit.PREFETCH, 3)
            yield session.head(feed)

    outputs = session.backend.infer(inputs())
    for number in range(2):
        (found,) = session.tail(feeds[number], next(outputs)).values()
        np.testing.assert_array_equal(found, logits[number : number + 1])
    with pytest.raises(AcceleratorError, match=r"^WATCHDOG in PREFETCH, command 3 of the body; check"):
        next(outputs)
    np.testing.assert_array_equal(session.run(None, {"pixels": digits.images()[:4]})[0], logits)


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


@pytest.mark.parametrize("cycles", [1, (1 << 24) - 1, 1 << 24, 40_000_000])
def test_a_wait_is_as_long_as_asked_for(cycles: int) -> None:
    transport, line = opened()
    before = len(line.executed)
    assert not transport.wait_for_interrupt(cycles)
    waits = [frame.length for frame in line.executed[before:] if frame.operation == Operation.WAIT]
    assert sum(waits) == cycles
    assert max(waits) < 1 << 24
    line.accelerator.interrupt = True
    assert transport.wait_for_interrupt(cycles)


# Requests that are on the way together.


def test_posted_requests_are_on_the_way_together() -> None:
    """A line that answers late is not idle meanwhile, and no more is on the way than the board keeps."""
    transport, line = opened(Accelerator(1 << 16))
    line.latency_s, data = 0.002, np.random.default_rng(2).bytes(1 << 15)
    begin = line.clock.now
    transport.post_write_memory(0, data)
    transport.client.settle()
    ideal = len(data) * 10 / transport.client.rate
    assert ideal < line.clock.now - begin < 1.1 * ideal
    assert line.accelerator.arena[: len(data)] == data
    # While the board waits, it keeps what comes.
    waits, statuses = transport.post_wait(500_000), [transport.post_read_register(4) for _ in range(3)]
    transport.post_write_memory(0, data)
    assert not waits()
    assert [status() for status in statuses] == [1, 1, 1]
    transport.client.settle()
    assert 0 < line.most_waiting <= QUEUE_BYTES
    assert transport.read_memory(0, len(data)) == data


@pytest.mark.parametrize("pause", [0.5, 1.5, 100.0])
def test_after_a_pause_with_answers_on_the_way_the_rate_is_agreed_on_again(pause: float) -> None:
    transport, line = opened()
    first = transport.post_read_register(4)
    line.clock.now += pause
    begin = line.clock.now
    second = transport.post_read_register(8)
    assert (first(), second()) == (1, 2)
    assert line.clock.now - begin < 0.1
    assert (transport.client.rate, transport.client.repeated) == (3_000_000, 0)


def test_what_is_posted_after_a_refused_request_is_not_carried_out() -> None:
    transport, line = opened()
    transport.post_write_register(252, 1)
    transport.post_write_register(8, 1)
    with pytest.raises(LinkError, match=r"^/dev/ttyTEST: the board refuses access to register 0xfc; generate"):
        transport.client.settle()
    assert line.accelerator.written == []
    transport.write_register(8, 2)
    assert line.accelerator.written == [(8, 2)]


def test_a_request_that_was_given_up_says_so() -> None:
    transport, line = opened()
    line.pulled = True
    value = transport.post_read_register(4)
    begin = line.clock.now
    for message in ("the board must answer within .* 6 times; check", "a request must be carried out, and an earlier"):
        with pytest.raises(LinkError, match=f"^/dev/ttyTEST: {message}"):
            value()
    assert line.clock.now - begin < REQUEST_S
    line.pulled = False
    assert transport.read_register(4) == 1


@pytest.mark.parametrize("where", ["to_board", "to_host"])
@pytest.mark.parametrize("fault", ["swallow", "change"])
@pytest.mark.parametrize("place", range(7))
def test_a_posted_request_that_is_lost_is_carried_out_once(where: str, fault: str, place: int) -> None:
    """And so are those before and after it, in their order, whichever frame or answer is lost or damaged."""
    transport, line = opened()
    data, written = np.random.default_rng(3).bytes(300), []
    faults, found = getattr(line, where), []
    for number in range(7):
        hits = number == place
        faults.swallow, faults.change = (hits and fault == "swallow"), float(hits and fault == "change")
        match number:
            case 0 | 4:
                transport.post_write_register(4 * number, 70 + number)
                written.append((4 * number, 70 + number))
            case 1:
                line.accelerator.interrupt = True
                found.append(transport.post_wait(100))
            case 2 | 5:
                transport.post_write_memory(100 * number, data)
            case 3:
                found.append(transport.post_read_register(0))
            case 6:
                found.append(transport.post_read_memory(500, 300))
        faults.swallow, faults.change = 0, 0.0
    begin = line.clock.now
    assert [promise() for promise in found] == [True, 70, data]
    assert line.clock.now - begin < 2
    assert line.accelerator.written == written
    assert line.accelerator.arena[200:500] == line.accelerator.arena[500:800] == data
    # An answer says as well that all requests before it are done.
    assert transport.client.repeated > 0 or where == "to_host"
    before = transport.client.repeated
    transport.post_write_register(4, 5)
    assert transport.read_register(4) == 5
    assert transport.client.repeated == before


@pytest.mark.parametrize("lost", range(1, 5))
@pytest.mark.parametrize("carried_out", range(5))
def test_how_far_the_board_has_come_is_found_out(lost: int, carried_out: int) -> None:
    """The last answers are lost, and before them the requests from one on: each write is done once."""
    transport, line = opened()
    for number in range(4):
        line.to_board.swallow, line.to_host.swallow = number >= carried_out, number >= 4 - lost
        transport.post_write_register(4, number)
    line.to_board.swallow = line.to_host.swallow = 0
    transport.client.settle()
    assert line.accelerator.written == [(4, number) for number in range(4)]
    assert transport.client.repeated > 0


@pytest.mark.parametrize("lost", range(4))
def test_a_later_answer_speaks_for_one_that_is_lost(lost: int) -> None:
    transport, line = opened()
    for number in range(4):
        line.to_host.swallow = number == lost
        transport.post_write_register(4, number)
    transport.client.settle()
    assert line.accelerator.written == [(4, number) for number in range(4)]
    assert (transport.client.repeated > 0) == (lost == 3)


def test_what_the_board_keeps_is_enough() -> None:
    """It is busy for longer than the requests behind are on the line."""
    transport, line = opened(Accelerator(1 << 16))
    data = np.random.default_rng(4).bytes(1 << 14)
    checksum = transport.client.post(Operation.CHECKSUM, length=1 << 16)
    transport.post_write_memory(0, data)
    assert transport.client.answer(checksum).data == pack_word(zlib.crc32(bytes(1 << 16)))
    assert transport.read_memory(0, len(data)) == data
    assert 1024 < line.most_waiting <= QUEUE_BYTES
    assert transport.client.repeated == 0


def sweep_of_posted(requests: int, seed: int) -> None:
    """Requests on the way together, with faults of every kind."""
    rng = np.random.default_rng(seed)
    line = BridgeLine(VirtualClock(), seed=seed, latency_s=0.001)
    transport = LinkTransport(line, clock=line.clock)
    arena, writes, expected, given_up = bytearray(line.accelerator.arena), [], [], 0

    def post(number: int) -> None:
        size = int(rng.choice([1, 40, 700]))
        address = int(rng.integers(0, 2048 - size))
        match int(rng.integers(4)):
            case 0:
                # Nothing that is still to be read is among this.
                data, address = rng.bytes(size), address + 2048
                arena[address : address + size] = data
                transport.post_write_memory(address, data)
            case 1:
                expected.append((transport.post_read_memory(address, size), arena[address : address + size]))
            case 2:
                writes.append((4, number))
                transport.post_write_register(4, number)
            case 3:
                expected.append((transport.post_read_register(8), 2))

    for number in range(requests):
        if number % 100 == 0:
            for faults in (line.to_board, line.to_host):
                chance = float(rng.choice([0, 1e-5, 1e-4]))
                faults.drop, faults.double, faults.change, faults.insert = rng.permutation([chance, chance, 0, chance])
        begin = line.clock.now
        try:
            post(number)
            if rng.random() < 0.1:
                transport.client.settle()
                assert all(promise() == value for promise, value in expected)
                expected.clear()
                assert line.accelerator.arena == arena
                assert line.accelerator.written == writes
        except LinkError:
            # Nobody knows how far the board has come; but it has left nothing out, and done nothing twice.
            given_up += 1
            assert line.accelerator.written == writes[: len(line.accelerator.written)]
            arena[:], writes[:] = line.accelerator.arena, line.accelerator.written
            expected.clear()
        assert line.clock.now - begin < 20 * REQUEST_S
    assert line.most_waiting <= QUEUE_BYTES
    assert transport.client.repeated > requests / 200
    assert given_up < requests / 1000


def test_faults_on_the_line_change_nothing_that_is_posted() -> None:
    sweep_of_posted(2_000, seed=5)


@pytest.mark.regress
@pytest.mark.parametrize("seed", range(5))
def test_faults_on_the_line_change_nothing_of_very_many_that_are_posted(seed: int) -> None:
    sweep_of_posted(20_000, seed=200 + seed)


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


# Serial lines: how fast an adapter is, and why a port cannot be opened.


@pytest.mark.parametrize(
    ("vid", "pid", "rate"), [(0x0403, 0x6010, 12_000_000), (0x0403, 0x6015, 3_000_000), (None, None, 3_000_000)]
)
def test_only_some_adapters_are_fast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vid: int | None, pid: int | None, rate: int
) -> None:
    port, link = tmp_path / "ttyUSB0", tmp_path / "board"
    link.symlink_to(port)
    found = [SimpleNamespace(device=str(port), vid=vid, pid=pid)]
    monkeypatch.setattr("serial.tools.list_ports.comports", lambda: found)
    assert _most_rate(str(link)) == rate
    assert _most_rate("/dev/ttyOTHER") == 3_000_000


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.EBUSY, "Device or resource busy"), "must be free, and another program uses it"),
        (ValueError("Could not exclusively lock port"), "must be free, and another program uses it"),
        (OSError(errno.EACCES, "Permission denied"), "must be open to this user, and is not; join the group"),
    ],
    ids=["busy", "locked", "another user's"],
)
def test_the_reason_is_the_cause(error: Exception, reason: str) -> None:
    assert _reason("/dev/port", error).startswith(f"/dev/port: {reason}")
