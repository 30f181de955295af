"""Files of tensors: which file the command line names for which input or output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..files.numpy_files import load_archive, load_array
from .arrays import TensorInfo, check_feed, check_feeds


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


def load_samples(path: Path, infos: Sequence[TensorInfo]) -> dict[str, np.ndarray]:
    """The samples of all inputs, from an archive with an array for each, or from the file of the only one's.

    Raises
    ------
    ValueError
        If the file cannot be read, or a name, a type, a shape or a value is wrong; the message names the file.
    """
    names = [info.name for info in infos]
    if path.suffix != ".npy":
        feeds = load_archive(path)
    elif len(names) == 1:
        feeds = {names[0]: load_array(path)}
    else:
        raise ValueError(
            f"{path}: must be a NumPy archive (.npz) with an array for each of {', '.join(names)}, not one array; "
            "write it with numpy.savez"
        )
    try:
        check_feeds(infos, feeds)
    except (TypeError, ValueError) as error:
        wanted = (f"{info.name} {info.dtype}[{', '.join(map(str, ('samples', *info.sample_shape)))}]" for info in infos)
        raise ValueError(f"{path}: {error}; the model takes {', '.join(wanted)}") from error
    for name, array in feeds.items():
        _check_finite(str(path), name, array)
    return {info.name: info.with_samples(feeds[info.name]) for info in infos}


def load_labels(path: Path, samples: int, classes: int) -> npt.NDArray[np.int64]:
    """The class of each sample, int64[samples], from 0 to ``classes - 1``.

    Raises
    ------
    ValueError
        If the file cannot be read, or a type, a shape or a value is wrong; the message names the file.
    """
    labels = load_array(path)
    if labels.dtype.kind not in "iu":
        raise ValueError(f"{path}: labels must be integers, not {labels.dtype}; write them as numpy.int64")
    if labels.shape != (samples,):
        raise ValueError(
            f"{path}: labels must have the shape [{samples}], one for each sample, not {list(labels.shape)}; "
            "give those of the same samples, as one row"
        )
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if wrong.size:
        raise ValueError(
            f"{path}: labels must be between 0 and {classes - 1}, the {classes} classes of the model, "
            f"not {labels[wrong[0]]} at [{wrong[0]}]; number classes from 0 in the order of the model's output"
        )
    return labels.astype(np.int64)


def _check_finite(path: str, name: str, array: np.ndarray) -> None:
    """No code stands for NaN or infinity: what QuantizeLinear makes of them is nobody's definition."""
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return
    place = tuple(map(int, np.argwhere(~np.isfinite(array))[0]))
    raise ValueError(f"{path}: input {name} must be finite, not {array[place]} at {list(place)}")
