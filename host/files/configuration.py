"""Configurations by name or from a file, as users give them."""

from __future__ import annotations

from pathlib import Path

from ...golden.config import Config
from ...golden.presets import PRESETS


def find_config(config: str | Path | Config) -> Config:
    """The configuration that is meant.

    Parameters
    ----------
    config : str, Path or Config
        The name of a preset, a JSON file that :meth:`Config.to_json` wrote, or the configuration itself.

    Raises
    ------
    ValueError
        If there is neither such a preset nor such a file, or the file is no configuration.
    """
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
