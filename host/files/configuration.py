"""Configurations of users, by name or from a file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ...golden.config import Config
from ...golden.config_parts import ClusterConfig
from ...golden.presets import PRESETS


def find_config(config: str | Path | Config, cores: int | None = None) -> Config:
    """Return the configuration of a name or file.

    Parameters
    ----------
    config : str, Path or Config
        The name of a preset, a JSON file that :meth:`Config.to_json` wrote, or the configuration itself.
    cores : int or None
        The number of cores; by default that of the configuration.

    Raises
    ------
    ValueError
        If there is neither such a preset nor such a file, if the file is not a configuration, or if there cannot be so
        many cores.
    """
    found = _find(config)
    if cores in (None, found.cores):
        return found
    # A single core has its port for itself in any case.
    shared_port = found.cluster.shared_port or cores == 1
    return dataclasses.replace(found, cluster=ClusterConfig(cores, shared_port=shared_port))


def _find(config: str | Path | Config) -> Config:
    if isinstance(config, Config):
        return config
    if isinstance(config, str) and config in PRESETS:
        return PRESETS[config]
    path, names = Path(config), ", ".join(PRESETS)
    try:
        if not path.exists() and path.suffix:
            raise ValueError(
                f"{path}: must be a configuration file, and there is none; name a file, or a preset: {names}"
            )
        if not path.is_file():
            raise ValueError(f"config must be one of {names} or a JSON file, not {config}")
        # Some editors begin UTF-8 with a byte order mark.
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ValueError(f"{path}: must be a file that can be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: must be JSON in UTF-8, and byte {error.start} is not") from error
    try:
        return Config.from_json(text)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
