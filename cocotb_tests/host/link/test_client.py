"""The client of a link against the bridge's twin: what it asks for is done once, and in bounded time, or it says so."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cocotb_tests.support.transports.bridge_line import Accelerator, BridgeLine, VirtualClock
from lutterfly.golden.link.frames import INITIAL_RATE, RATE_TIMEOUT_S, Frame, Identity, pack_word, parse_word
from lutterfly.golden.link.operations import MAX_DATA, Operation, Status
from lutterfly.host.transports.line import LinkError
from lutterfly.host.transports.link import RATES, Client, LinkTransport, identity, result

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


@pytest.mark.parametrize("version", [{"link_version": 2}, {"max_data": 512}, {"clock_hz": 0}])
def test_a_board_of_another_version_is_refused(version: dict[str, int]) -> None:
    right = Identity(1, 50_000_000, 4096, MAX_DATA, 0)
    request = Frame(7, Operation.IDENTIFY)
    assert identity("port", request.answered(Status.OK, right.pack())) == right
    wrong = dataclasses.replace(right, **version).pack()
    for data in (wrong, wrong[:8]):
        with pytest.raises(LinkError, match=r"^port: the board must speak version 1 of the link, not [012]; generate"):
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
