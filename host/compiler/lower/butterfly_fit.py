"""Whether a configuration runs a fast pointwise convolution, and what would: for the compiler, and before training."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterable

from ....golden.config import Config
from ....golden.engines import FPC
from ....golden.engines.fpc import FpcConfig
from ....golden.numerics.butterfly import Pattern
from ....golden.numerics.fpc import stages_on
from ....golden.presets import PRESETS


def check_pattern(pattern: Pattern, config: Config) -> None:
    """Make sure that a configuration has an engine with all stages, weights and skips of a pattern.

    Raises
    ------
    ValueError
        With what it lacks, and the preset, or the part of a configuration, that would do.
    """
    if FPC not in config.engines:
        raise ValueError(missing_engines([FPC.name], config))
    try:
        stages_on(pattern, config.engines[FPC].pattern)
    except ValueError as error:
        raise ValueError(f"{error}; {_remedy(pattern)}") from error


def missing_engines(needed: Iterable[str], config: Config) -> str:
    """Why a configuration has no layer that any one of these engines would run."""
    have = ", ".join(engine.name for engine in config.engines)
    return f"engines must include {', or '.join(needed)} for this layer, not {have}; choose a --config that does"


def _remedy(pattern: Pattern) -> str:
    """The preset that runs a function of this pattern, or the part of a configuration that does."""
    for name, config in PRESETS.items():
        with contextlib.suppress(ValueError):
            if FPC in config.engines and stages_on(pattern, config.engines[FPC].pattern) is not None:
                return f"choose --config {name}"
    if pattern.direction is None:
        return "its distances must ascend (bottom-up) or descend (top-down): no configuration has another order"
    try:
        part = FpcConfig(pattern.width, pattern.direction, tuple(map(str, pattern.densities)), pattern.skips)
    except ValueError as error:
        return f"no configuration has that: {error}"
    return f'choose a --config with "FPC": {json.dumps(dataclasses.asdict(part))} among its engines'
