"""The target of compilation, from the options of the command line."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Self

from ...golden.config import Config
from ...golden.presets import DEFAULT_PRESET
from ..experimental import uio
from ..experimental.uio import SCHEME as MAPPED
from ..experimental.uio import UioTransport
from ..files.configuration import find_config
from ..program import Speed, SpreadBy
from ..session.loading import Given, LoadedProgram, load
from ..transports import link
from ..transports.link import SCHEME as SERIAL
from ..transports.link import LinkTransport, configuration_of

# Devices of `--device`: a board at a serial port, or an accelerator on this machine's own bus.

#: The description in help and messages.
FORMS = f"{SERIAL}PORT or {MAPPED}DEVICE,BUFFER"
_OPENERS = {SERIAL: link.open_device, MAPPED: uio.open_device}


def open_device(name: str) -> link.LinkTransport | uio.UioTransport:
    """Open the accelerator of a name; the caller has to close it.

    Raises
    ------
    ValueError
        If it is not such a name.
    LinkError, PortError, UioError
        If it cannot be reached.
    """
    for scheme, opener in _OPENERS.items():
        if name.startswith(scheme):
            return opener(name)
    raise ValueError(f"device must be {FORMS}, not {name}")


def check_serial(name: str) -> None:
    """Refuse devices without a serial link.

    Raises
    ------
    ValueError
        If the name is not that of a serial port.
    """
    if name.startswith(MAPPED):
        raise ValueError(
            f"device must be {SERIAL}PORT, not {name}: selftest is for a board at a serial port; use verify --device"
        )


@dataclass(frozen=True)
class Target:
    """The accelerator, and the way in which it is used.

    Attributes
    ----------
    config : Config
    batch : int or None
        Samples of an inference, see :func:`.loading.load`.
    spread_by : SpreadBy or None
        The dimension that is divided among cores, see :func:`.loading.load`.
    speed : Speed or None
        The speed at its clock, if that is known.
    transport : LinkTransport or UioTransport or None
        The transport to the accelerator; None where it is to be simulated.
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
        """Create it from the options of a command; by default ``config`` is the device's, or the default preset.

        Raises
        ------
        ValueError
            If there is no such configuration, clock or device, or if work is to be divided and there is one core.
        LinkError, PortError, UioError, HardwareError
            If the device does not answer, or holds another design.
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
        """Close the device."""
        if self.transport is not None:
            self.transport.close()

    def load(self, given: Given) -> LoadedProgram:
        """Load a program for it, see :func:`.loading.load`."""
        return load(given, self.config, batch=self.batch, spread_by=self.spread_by)
