"""What a program is compiled for, as the command line says it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...golden.config import Config
from ..files.configuration import find_config
from ..program import Outcome, Speed, SpreadBy
from ..session.loaded import Loaded
from ..session.loading import Given, load, load_outcome


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
    """

    config: Config
    batch: int | None = None
    spread_by: SpreadBy | None = None
    speed: Speed | None = None

    @classmethod
    def of(
        cls,
        config: str,
        cores: int | None,
        spread: SpreadBy | None,
        batch: int | None = None,
        mhz: float | None = None,
    ) -> Target:
        """From the options of a command.

        Raises
        ------
        ValueError
            If there is no such configuration or clock, or if it has one core and is to be spread.
        """
        found = find_config(config, cores)
        if spread is not None and found.cores == 1:
            raise ValueError(
                "spread must be left out for one core; give --cores, or a configuration with several cores"
            )
        return cls(found, batch, spread, Speed.of(found, mhz))

    def load(self, given: Given) -> Loaded:
        """The program for it, see :func:`.loading.load`."""
        return load(given, self.config, batch=self.batch, spread_by=self.spread_by)

    def load_outcome(self, path: str | Path) -> tuple[Loaded, Outcome]:
        """And what its compiler has decided, see :func:`.loading.load_outcome`."""
        return load_outcome(path, self.config, batch=self.batch, spread_by=self.spread_by)
