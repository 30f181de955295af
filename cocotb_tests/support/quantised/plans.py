"""Plans of which a test knows no more than what it asks for."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from lutterfly.host.compiler.network import Network

State = TypeVar("State", bound=Network)


def plan_of(kind: type[State], before: Network, **known: Any) -> State:
    """A plan in this state, with what is known; all else is None, so that whoever asks for it fails."""
    names = {field.name for field in dataclasses.fields(kind)} - {field.name for field in dataclasses.fields(before)}
    return kind.of(before, **dict.fromkeys(names) | known)
