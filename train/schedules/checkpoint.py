"""Checkpoints from which training continues as if it had not been interrupted, random numbers included."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Protocol

import numpy as np
import torch


class Stateful(Protocol):
    """A model, an optimiser, a learning-rate schedule, a :class:`.Densification` ..."""

    def state_dict(self) -> dict:
        """Return the state to store."""

    def load_state_dict(self, state: dict) -> object:
        """Restore the state."""


def save_checkpoint(path: str | Path, epoch: int, **parts: Stateful) -> None:
    """Write a checkpoint atomically: after an interruption the one before is still there.

    Parameters
    ----------
    path : path
    epoch : int
        The next epoch.
    **parts
        All objects that training changes: model, optimiser, schedules.
    """
    content = {
        "epoch": epoch,
        "parts": {name: part.state_dict() for name, part in parts.items()},
        "random": _random_state(),
    }
    path = Path(path)
    unfinished = path.with_name(f"{path.name}.part")
    torch.save(content, unfinished)
    unfinished.replace(path)


def load_checkpoint(path: str | Path, **parts: Stateful) -> int:
    """Restore the parts, and the random numbers of torch, NumPy and Python.

    Parameters
    ----------
    path : path
    **parts
        Objects made as for the interrupted run, named as in :func:`save_checkpoint`.

    Returns
    -------
    int
        The epoch with which to continue.

    Raises
    ------
    ValueError
        If the checkpoint has other parts.
    """
    content = torch.load(path, weights_only=True)
    if set(content["parts"]) != set(parts):
        raise ValueError(f"{path}: parts must be {', '.join(sorted(content['parts']))}, not {', '.join(sorted(parts))}")
    for name, part in parts.items():
        part.load_state_dict(content["parts"][name])
    _set_random_state(content["random"])
    return content["epoch"]


def _random_state() -> dict[str, object]:
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002  # loaders of data use it
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": (kind, keys.tolist(), *rest),
        "python": random.getstate(),
    }


def _set_random_state(state: dict[str, object]) -> None:
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available() and state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
    np.random.set_state(state["numpy"])  # noqa: NPY002
    random.setstate(state["python"])
