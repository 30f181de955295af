"""Files of tensors: which file the command line names for which input or output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ..files.numpy_files import load_array
from .arrays import TensorInfo, check_feed


def assign(kind: str, words: Sequence[str], infos: Sequence[TensorInfo]) -> dict[str, str]:
    """Files by the name of their tensor, from ``NAME=FILE`` or, where there is only one tensor, ``FILE``.

    Both names and files may contain ``=``.
    """
    known = [info.name for info in infos]
    files: dict[str, str] = {}
    for word in words:
        # The longest: a name may be the beginning of another one.
        name = max((name for name in known if word.startswith(f"{name}=")), key=len, default=None)
        if name is not None:
            path = word[len(name) + 1 :]
        elif len(known) == 1 and ("=" not in word or "/" in word.partition("=")[0] or Path(word).exists()):
            name, path = known[0], word
        elif "=" in word:
            raise ValueError(
                f"{kind} must be one of {', '.join(known)}, not {word.partition('=')[0]}; "
                f"for a file with = in its name: --{kind} {known[0]}={word}"
            )
        else:
            raise ValueError(f"--{kind} must be NAME=FILE, with NAME one of {', '.join(known)}, not {word}")
        if name in files:
            raise ValueError(f"{kind} {name} must be given once, not twice")
        files[name] = path
    return files


def load_inputs(files: Mapping[str, str], infos: Sequence[TensorInfo]) -> dict[str, np.ndarray]:
    """The arrays of inputs, from their files."""
    known, feeds = {info.name: info for info in infos}, {}
    for name, path in files.items():
        feeds[name] = load_array(path)
        try:
            check_feed(known[name], feeds[name])
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error
        _check_finite(path, name, feeds[name])
    return feeds


def _check_finite(path: str, name: str, array: np.ndarray) -> None:
    """No code stands for NaN or infinity: what QuantizeLinear makes of them is nobody's definition."""
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return
    place = tuple(map(int, np.argwhere(~np.isfinite(array))[0]))
    raise ValueError(f"{path}: input {name} must be finite, not {array[place]} at {list(place)}")
