"""What a program is compiled for, as the command line says it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ...golden.config import Config
from ...golden.presets import DEFAULT_PRESET
from ..experimental import uio
from ..experimental.uio import SCHEME as MAPPED
from ..experimental.uio import UioTransport
from ..files.configuration import find_config
from ..program import Outcome, Speed, SpreadBy
from ..session.loading import Given, Loaded, load, load_outcome
from ..transports import link
from ..transports.link import SCHEME as SERIAL
from ..transports.link import LinkTransport, configuration_of

# What `--device` names: a board at a serial port, or an accelerator on this machine's own bus.

#: As help and messages say it.
FORMS = f"{SERIAL}PORT or {MAPPED}DEVICE,BUFFER"
_OPENERS = {SERIAL: link.open_device, MAPPED: uio.open_device}


def open_device(name: str) -> link.LinkTransport | uio.UioTransport:
    """The accelerator of a name; to be closed.

    Raises
    ------
    ValueError
        If it is no such name.
    LinkError, PortError, UioError
        If it cannot be reached.
    """
    for scheme, opener in _OPENERS.items():
        if name.startswith(scheme):
            return opener(name)
    raise ValueError(f"device must be {FORMS}, not {name}")


def check_serial(name: str) -> None:
    """Refuse what has no serial link.

    Raises
    ------
    ValueError
        If the name is not one of a serial port.
    """
    if name.startswith(MAPPED):
        raise ValueError(
            f"device must be {SERIAL}PORT, not {name}: selftest is for a board at a serial port; use verify --device"
        )


@dataclass(frozen=True)
class Target:
    """The accelerator, and how it is used.

    Attributes
    ----------
    config : Config
    batch : int or None
        Samples of an inference, as :func:`.loading.load` takes it.
    spread_by : SpreadBy or None
        Likewise.
    speed : Speed or None
        At its clock, if that is known.
    transport : LinkTransport or UioTransport or None
        A board or an accelerator, where the accelerator is not to be simulated.
    """

    config: Config
    batch: int | None = None
    spread_by: SpreadBy | None = None
    speed: Speed | None = None
    transport: LinkTransport | UioTransport | None = None

    @classmethod
    def of(
        cls,
        config: str | None,
        cores: int | None,
        spread: SpreadBy | None,
        batch: int | None = None,
        mhz: float | None = None,
        device: str | None = None,
    ) -> Target:
        """From the options of a command; without ``config`` the device's, or the default preset.

        Raises
        ------
        ValueError
            If there is no such configuration, clock or device, or if it has one core and is to be spread.
        LinkError, PortError, UioError, HardwareError
            If the device does not answer, or holds something else.
        """
        found = find_config(config or DEFAULT_PRESET, cores)
        if spread is not None and found.cores == 1:
            raise ValueError(
                "spread must be left out for one core; give --cores, or a configuration with several cores"
            )
        if device is None:
            return cls(found, batch, spread, Speed.of(found, mhz))
        with contextlib.ExitStack() as failing:
            board = open_device(device)
            failing.callback(board.close)
            chosen = found if config else configuration_of(board)
            told = board.clock_hz / 1e6 if board.clock_hz else None
            target = cls(chosen, batch, spread, Speed.of(chosen, mhz or told), board)
            failing.pop_all()
        return target

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_failure: object) -> None:
        """Let others have the board."""
        if self.transport is not None:
            self.transport.close()

    def load(self, given: Given) -> Loaded:
        """The program for it, see :func:`.loading.load`."""
        return load(given, self.config, batch=self.batch, spread_by=self.spread_by)

    def load_outcome(self, path: str | Path) -> tuple[Loaded, Outcome]:
        """And what its compiler has decided, see :func:`.loading.load_outcome`."""
        return load_outcome(path, self.config, batch=self.batch, spread_by=self.spread_by)
