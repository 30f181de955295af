"""The commands `selftest` and `twin`."""

# ruff: noqa: PLC0415  (what takes long to import is imported by the command that needs it)
from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...files.terminal import Progress
from ...transports.link import LinkTransport
from ..answer import Answer
from ..target import Target, check_serial
from .commands import board_and_config

if TYPE_CHECKING:
    from ...transports.twin import Twin


def selftest(device: str, samples: int, config: str | None, progress: Progress) -> Answer:
    """Test a board at a serial port.

    Raises
    ------
    ValueError
        If it is not a serial port.
    LinkError, PortError, HardwareError
        If it does not answer, or holds another design.
    """
    from ...session.selftest import run

    check_serial(device)
    with Target.of(config, None, None, device=device) as target:
        assert isinstance(target.transport, LinkTransport), "a serial port has a link"
        found = run(target.transport, target.config, samples, progress)
    return Answer("\n".join(found.lines()), {"device": device, **found.values()}, found.is_right)


@dataclass(frozen=True)
class Served:
    """A twin that is ready to serve.

    Attributes
    ----------
    twin : Twin
    name : str
        Name of the board or the configuration.
    """

    twin: Twin
    name: str

    def serve(self, tell: Callable[[Answer], None]) -> None:
        """Print the name of the terminal, and simulate until an interrupt from the keyboard."""
        device = f"uart:{self.twin.path}"
        tell(Answer(f"{self.name} at {device}, until Ctrl-C", {"device": device, "board": self.name}))
        with contextlib.suppress(KeyboardInterrupt):
            self.twin.serve()


def twin(board: str, config: str | None, progress: Progress) -> Served:
    """Build the twin of a board, with its own configuration if ``config`` is None.

    Raises
    ------
    ValueError
        If there is no such board or configuration, or the board has no memory for the arena.
    """
    from ...transports.twin import Pins, Twin

    found, own = board_and_config(board, config)
    sdram = None if own.arena.on_chip_bytes else found.sdram
    pins = Pins.build(own, found.core_hz, sdram=sdram, progress=progress)
    return Served(Twin(pins), found.name)
