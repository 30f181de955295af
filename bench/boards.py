"""Milliseconds of core and of link on a board, and its bytes beside ONNX Runtime's, through the pins of its twin.

    python bench/boards.py --board ulx3s-85f MODEL.onnx...

Without a model: the digits. Bytes to the board are counted, and cycles are the accelerator's; a byte takes ten bits at
the rate that was agreed on. ``bench/link.py`` has the time from end to end. The twin's clock is slow, which changes
neither.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from lutterfly.boards import BOARDS, find_board
from lutterfly.examples import digits
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.stages import stages
from lutterfly.host import InferenceSession
from lutterfly.host.model import executed, runtime
from lutterfly.host.model.arrays import differing_bytes
from lutterfly.host.session.verify import random_feeds
from lutterfly.host.transports.line import SerialLine
from lutterfly.host.transports.link import LinkTransport
from lutterfly.host.transports.twin import Pins, Twin

_CLOCK_HZ = 24_000_000
_BYTE_BITS = 10
_SEED = 1
#: Heads of the table, and widths: of loading the program, of an inference.
_COLUMNS = {
    "windows": 8,
    "load bytes": 12,
    "load ms": 9,
    "requests ": 10,
    "bytes": 10,
    "link ms": 9,
    "requests": 10,
    "cycles": 10,
    "predicted": 11,
    "core ms": 9,
    "compared": 10,
    "differ": 8,
}


class CountingLine(SerialLine):
    """A serial line that counts bytes and frames sent."""

    bytes = frames = 0

    def write(self, data: bytes) -> None:
        """Count and send."""
        self.bytes += len(data)
        self.frames += 1
        super().write(data)

    def take(self) -> tuple[int, int]:
        """Return the counts since the last call."""
        counted = self.bytes, self.frames
        self.bytes = self.frames = 0
        return counted


def main() -> None:
    """Print a line for each network."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--board", choices=BOARDS, default="ulx3s-85f")
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL.onnx")
    given = parser.parse_args()
    board = find_board(given.board)
    config = PRESETS[board.preset]
    print(f"{board.name}, {board.preset}, {board.core_mhz:g} MHz")
    print(f"{'':12}" + "".join(f"{head:>{width}}" for head, width in _COLUMNS.items()))
    with Twin(Pins.build(config, _CLOCK_HZ, progress=lambda *_: None)).served() as device:
        line = CountingLine(device.removeprefix("uart:"))
        transport = LinkTransport(line)
        for path in given.models or [digits.model_path("qop")]:
            session = InferenceSession(path, config, transport)
            windows = len(stages(session.program, transport.arena_bytes))
            line.take()
            session.driver()
            loaded, load_requests = line.take()
            # The first one fetches the program as well.
            rng = np.random.default_rng(_SEED)
            compared = differing = sent = requests = 0
            for _ in range(2):
                feeds = random_feeds(session, session.loaded.graph, rng)
                line.take()
                found = session.run(None, feeds)
                sent, requests = line.take()
                reference = executed.open_session(session.loaded.model).run(None, feeds)
                for ours, theirs in zip(found, reference, strict=True):
                    compared += theirs.nbytes
                    differing += differing_bytes(ours, theirs)
            rate, cycles = transport.client.rate, session.counters[-1]["cycles"]
            load_ms, link_ms = (1000 * count * _BYTE_BITS / rate for count in (loaded, sent))
            values = (
                *(windows, f"{loaded:,}", f"{load_ms:.1f}", load_requests),
                *(f"{sent:,}", f"{link_ms:.2f}", requests),
                *(f"{cycles:,}", f"{session.program.predicted_cycles:,}", f"{cycles / board.core_mhz / 1000:.3f}"),
                *(f"{compared:,}", differing),
            )
            row = (f"{value:>{width}}" for value, width in zip(values, _COLUMNS.values(), strict=True))
            print(f"{path.stem:12}" + "".join(row), flush=True)
        print(f"{transport.client.rate:,} bits a second; repeated requests: {transport.client.repeated}")
        if reason := runtime.probe():
            print(f"ONNX Runtime is no reference here: {reason}")
        transport.close()


if __name__ == "__main__":
    main()
