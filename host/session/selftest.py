"""The self-test of a board: its identity, its memory, its link, inference on digits, and its clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...examples import digits
from ...golden.config import Config
from ..driver.driver import Control
from ..files.terminal import Progress
from ..model import executed, runtime
from ..model.arrays import differing_bytes
from ..transports.link import LinkTransport
from .session import InferenceSession

#: Duration of the clock's measurement, and its tolerance, which covers the host's timer and the delay of an answer.
_CLOCK_S, _CLOCK_ERROR = 1.0, 0.02
_SEED = 33
#: Bytes of an arena that is tested as a whole, and of each part of a larger one.
_WHOLE_BYTES, _PART_BYTES = 1 << 20, 1 << 10


@dataclass
class SelfTest:
    """The results of a self-test.

    Attributes
    ----------
    name : str
        Name of the configuration.
    rate : int
        The agreed rate, in bits a second.
    arena_bytes : int
        Bytes that were written and read back, twice.
    differing_bytes : int
        Bytes of these that differ.
    refused : bool
        Whether a damaged frame was refused without effect.
    repeated : int
        All requests that had to be sent again.
    samples : int
    bytes, mismatched_bytes : int
        Bytes of the outputs, compared with ONNX Runtime's, or with the golden functions' where it is not a reference.
    right_digits : int
        Digits that were classified rightly.
    cycles, predicted_cycles : int
        Cycles of one inference.
    clock_hz, measured_hz : float
        The board's nominal clock, and the clock measured by this machine.
    is_simulated : bool
        Whether the clock is so slow that the board must be simulated; the clock is not judged then.
    """

    name: str
    rate: int = 0
    arena_bytes: int = 0
    differing_bytes: int = 0
    refused: bool = False
    repeated: int = 0
    samples: int = 0
    bytes: int = 0
    mismatched_bytes: int = 0
    right_digits: int = 0
    cycles: int = 0
    predicted_cycles: int = 0
    clock_hz: float = 0.0
    measured_hz: float = 0.0
    is_simulated: bool = False
    reference: str = field(default="ONNX Runtime")

    @property
    def clock_is_right(self) -> bool:
        """Whether the clock is the nominal one, or a simulated one."""
        return self.is_simulated or abs(self.measured_hz / self.clock_hz - 1) <= _CLOCK_ERROR

    @property
    def is_right(self) -> bool:
        """Whether all results are right."""
        return not self.differing_bytes and self.refused and not self.mismatched_bytes and self.clock_is_right

    def lines(self) -> Iterator[str]:
        """Return the results as lines of text."""
        measured = f"{self.measured_hz / 1e6:,.2f} MHz by this machine's clock"
        yield f"configuration  {self.name}"
        yield f"arena          {self.arena_bytes:,} bytes written and read back, {self.differing_bytes:,} differ"
        refused = "refused, and changed nothing" if self.refused else "NOT refused"
        yield f"link           {self.rate:,} bits a second; a damaged frame was {refused}; {self.repeated} repeated"
        yield (
            f"digits         {self.right_digits} of {self.samples} right; {self.bytes:,} bytes compared with "
            f"{self.reference}, {self.mismatched_bytes:,} differ"
        )
        yield f"cycles         {self.cycles:,} for an inference, predicted {self.predicted_cycles:,}"
        more = " (simulated)" if self.is_simulated else "" if self.clock_is_right else ": WRONG"
        yield f"clock          {self.clock_hz / 1e6:,.2f} MHz, {measured}{more}"
        yield f"verdict: {'the board is right' if self.is_right else 'the board is NOT right'}"

    def values(self) -> dict[str, Any]:
        """Return the results as values for JSON."""
        return {
            "config": self.name,
            "rate": self.rate,
            "arena_bytes": self.arena_bytes,
            "differing_bytes": self.differing_bytes,
            "damaged_frame_refused": self.refused,
            "repeated_requests": self.repeated,
            "samples": self.samples,
            "bytes": self.bytes,
            "mismatched_bytes": self.mismatched_bytes,
            "accuracy": self.right_digits / max(self.samples, 1),
            "cycles": self.cycles,
            "predicted_cycles": self.predicted_cycles,
            "mhz": self.clock_hz / 1e6,
            "measured_mhz": round(self.measured_hz / 1e6, 3),
            "is_simulated": self.is_simulated,
            "is_right": self.is_right,
        }


def run(board: LinkTransport, config: Config, samples: int, progress: Progress) -> SelfTest:
    """Test a board that holds ``config``.

    Parameters
    ----------
    board : LinkTransport
    config : Config
    samples : int
        Digits.
    progress : callable

    Raises
    ------
    ValueError
        If the digits do not fit the configuration.
    HardwareError, AcceleratorError, LinkError, PortError
        If the board holds another configuration, stops or does not answer.
    """
    # This is checked before anything is written.
    Control(board, config).check_identity()
    session = InferenceSession(digits.model_path("qop"), config, board, progress=progress)
    found = SelfTest(session.program.config_name)
    with board.exclusive():
        progress("testing the memory")
        _test_arena(board, found)
        progress("testing the link")
        found.refused = board.client.refuses_damage()
    _test_digits(session, samples, found, progress)
    with board.exclusive():
        progress("measuring the clock")
        client = board.client
        found.rate, found.clock_hz, found.is_simulated = client.rate, client.identity.clock_hz, client.is_simulated
        found.measured_hz = client.measure_clock(_CLOCK_S)
        found.repeated = client.repeated
    return found


def _test_arena(board: LinkTransport, found: SelfTest) -> None:
    """Test the arena with random bytes and their complement, so that every bit is both 0 and 1.

    An arena in external memory would take minutes: of that, a part at each power of two and the end are tested, so that
    each bit of an address makes a difference. All parts are written before any is read.
    """
    size = board.arena_bytes
    parts = [(0, size)]
    if size > _WHOLE_BYTES:
        starts = [0, *(1 << bit for bit in range(_PART_BYTES.bit_length() - 1, size.bit_length() - 1))]
        parts = [(at, _PART_BYTES) for at in (*starts, size - _PART_BYTES)]
    found.arena_bytes = sum(length for _, length in parts)
    rng = np.random.default_rng(_SEED)
    images = [rng.integers(0, 256, length, dtype=np.uint8) for _, length in parts]
    for inverted in (0, 0xFF):
        for (at, _), image in zip(parts, images, strict=True):
            board.write_memory(board.arena_base + at, (image ^ inverted).tobytes())
        for (at, length), image in zip(parts, images, strict=True):
            read = np.frombuffer(board.read_memory(board.arena_base + at, length), np.uint8)
            found.differing_bytes += int(np.count_nonzero(read != image ^ inverted))


def _test_digits(session: InferenceSession, samples: int, found: SelfTest, progress: Progress) -> None:
    images, labels = digits.images()[:samples], digits.labels()[:samples]
    feeds = {session.get_inputs()[0].name: images}
    if runtime.probe() is None:
        (expected,) = executed.open_session(session.loaded.model).run(None, feeds)
    else:
        found.reference = "the golden functions"
        (expected,) = InferenceSession(session.loaded, session.config, backend="golden").run(None, feeds)
    progress("classifying digits")
    (outputs,) = session.run(None, feeds)
    found.samples, found.bytes = len(images), expected.nbytes
    found.mismatched_bytes = differing_bytes(outputs, expected)
    found.right_digits = int(np.count_nonzero(outputs.argmax(axis=1) == labels))
    found.cycles, found.predicted_cycles = session.counters[-1]["cycles"], session.program.predicted_cycles
