"""What a program is compiled for, as the command line says it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ...golden.config import Config
from ...golden.presets import DEFAULT_PRESET
from ..files.configuration import find_config
from ..link import LinkTransport
from ..link.transport import configuration_of
from ..program import Outcome, Speed, SpreadBy
from ..session.loaded import Loaded
from ..session.loading import Given, load, load_outcome
from ..uio import UioTransport
from .board.opening import open_device


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
