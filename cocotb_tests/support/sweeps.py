"""What of a sweep runs in each `make test`; the rest is for `make regress`."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def sweep(values: Iterable[Any], *, kept: Container[Any]) -> list[Any]:
    """Values of a parameter, or tuples of those of several, of which each run takes those that are ``kept``."""
    of_each = {value: value if isinstance(value, tuple) else (value,) for value in values}
    return [pytest.param(*each, marks=[pytest.mark.regress] * (value not in kept)) for value, each in of_each.items()]


#: Of a component that is compiled for each: networks run on the whole core of the larger one in every run.
SWEPT_PRESETS = sweep(["tiny", "ecp5-85k"], kept=["tiny"])
