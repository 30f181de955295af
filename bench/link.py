"""Milliseconds from end to end on a board: a single inference, and a batch through the serial line.

    python -m bench.link MODEL.onnx...

Without a model: the digits. The line carries bytes both ways at its rate, and an adapter keeps what comes from the
board for some time, as those at USB do: one of an FTDI does for a millisecond if its latency timer is set as the
client sets it, and for 16 if it may not. The board is the golden bridge with an accelerator that takes the predicted
cycles and computes nothing, in virtual time; ``--pins`` takes the simulated board at its pins instead, at the faster
rate and with a line that keeps nothing, and compares its bytes with the golden functions'.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cocotb_tests.support.transports.bridge_line import Accelerator, BridgeLine, VirtualClock
from lutterfly.boards import BOARDS, find_board
from lutterfly.examples import digits
from lutterfly.golden import registers
from lutterfly.golden.config import Config
from lutterfly.golden.presets import PRESETS
from lutterfly.host import InferenceSession
from lutterfly.host.session.verify import random_feeds
from lutterfly.host.transports.link import FAST_RATES, RATES, LinkTransport
from lutterfly.host.transports.twin import Pins, PinsLine

_BATCH, _SEED = 8, 1
_LATENCIES_MS = (0.0, 1.0, 2.0, 16.0)
_RATES = (RATES[0], FAST_RATES[0])


class Idle(Accelerator):
    """An accelerator that takes its time and computes nothing.

    Attributes
    ----------
    cycles : int
        Cycles of a run.
    line : BridgeLine
        Its clock.
    """

    def __init__(self, config: Config):
        super().__init__(config.arena.on_chip_bytes)
        self.registers = {register.address: register.reset for register in registers.REGISTERS.values()}
        for name, value in (("ID", registers.ID), ("VERSION", registers.VERSION), ("CONFIG_HASH", config.hash)):
            self.registers[registers.REGISTERS[name].address] = value
        self.cycles = self.done = 0

    def write_register(self, address: int, value: int) -> bool:
        """Begin a run at a start."""
        if address == registers.REGISTERS["CONTROL"].address and value & registers.CONTROL_START:
            self.registers[registers.REGISTERS["STATUS"].address] = registers.STATUS_DONE
            self.done = self.line.at + self.cycles / self.line.bridge.clock_hz
        return super().write_register(address, value)

    @property
    def interrupt(self) -> bool:
        """Whoever waits for it waits until the end of the run."""
        self.line.at = max(self.line.at, self.done)
        return True

    @interrupt.setter
    def interrupt(self, value: bool) -> None:
        """Nothing sets it from outside."""


def modelled(
    config: Config, cycles: int, clock_hz: int, rate: int, latency_s: float
) -> tuple[LinkTransport, BridgeLine]:
    """Return a board at a modelled line, which knows what a run takes."""
    accelerator, clock = Idle(config), VirtualClock()
    line = BridgeLine(clock, accelerator, clock_hz=clock_hz, latency_s=latency_s)
    accelerator.line, line.best_rate = line, 2 * rate
    transport = LinkTransport(line, (rate,), clock=clock)
    accelerator.cycles = cycles
    return transport, line


def milliseconds(session: InferenceSession, clock: Callable[[], float], count: int) -> tuple[float, list[bytes]]:
    """Return the time of so many inferences, and their outputs."""
    arrays = [session.head(feed) for feed in feeds_of(session, count)]
    begin = clock()
    outputs = [array.tobytes() for outputs in session.backend.infer(arrays) for array in outputs]
    return 1000 * (clock() - begin), outputs


def feeds_of(session: InferenceSession, count: int) -> list[dict[str, np.ndarray]]:
    """Return random inputs, the same each time."""
    rng = np.random.default_rng(_SEED)
    return [random_feeds(session, session.loaded.graph, rng) for _ in range(count)]


def measure(session: InferenceSession, clock: Callable[[], float], *, latency_ms: float, name: str) -> list[bytes]:
    """Print a line; return the outputs of the batch. The last column is the share of the time of an inference, in a
    batch, in which the line carries the input's own bytes."""
    begin = clock()
    session.driver()
    load_ms = 1000 * (clock() - begin)
    # The first one writes the registers of a run as well.
    milliseconds(session, clock, 1)
    single, _ = milliseconds(session, clock, 1)
    batch, outputs = milliseconds(session, clock, _BATCH)
    client = session.transport.client
    assert not client.repeated
    size, each = sum(port.size_bytes for port in session.program.inputs), batch / _BATCH
    line_ms = 1000 * 10 * size / client.rate
    core_ms = 1000 * session.program.predicted_cycles / client.identity.clock_hz
    values = (
        *(f"{client.rate:,}", f"{latency_ms:g}", f"{load_ms:.1f}", f"{size:,}", f"{line_ms:.2f}", f"{core_ms:.3f}"),
        *(f"{single:.2f}", f"{each:.2f}", f"{line_ms / each:.0%}"),
    )
    print(f"{name:10}" + "".join(f"{value:>11}" for value in values), flush=True)
    return outputs


def main() -> None:
    """Print lines for each network."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--board", choices=BOARDS, default="ulx3s-85f")
    parser.add_argument("--pins", action="store_true", help="simulate the board at its pins")
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL.onnx")
    given = parser.parse_args()
    board = find_board(given.board)
    config, clock_hz = PRESETS[board.preset], board.core_hz
    print(f"{board.name}, {board.preset}, {board.core_mhz:g} MHz; batches of {_BATCH}, milliseconds")
    heads = ("bit/s", "late", "load", "bytes", "their own", "core", "single", "batched", "share")
    print(f"{'':10}" + "".join(f"{head:>11}" for head in heads))
    for path in given.models or [digits.model_path("qop")]:
        golden = InferenceSession(path, config, backend="golden")
        if given.pins:
            pins = PinsLine(Pins.build(config, clock_hz, progress=lambda *_: None))
            session = InferenceSession(golden.loaded, config, LinkTransport(pins, FAST_RATES, clock=pins.clock))
            found = measure(session, pins.clock, latency_ms=0, name=path.stem)
            _, expected = milliseconds(golden, pins.clock, _BATCH)
            assert found == expected, "bytes differ"
            continue
        for rate in _RATES:
            for latency_ms in _LATENCIES_MS:
                transport, line = modelled(config, golden.program.predicted_cycles, clock_hz, rate, latency_ms / 1000)
                session = InferenceSession(golden.loaded, config, transport)
                measure(session, line.clock, latency_ms=latency_ms, name=path.stem)


if __name__ == "__main__":
    main()
