"""The inputs and outputs of a model as ONNX Runtime describes them, and users' arrays and files for them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..files.files import load_archive, load_array

if TYPE_CHECKING:
    from .model import Model

#: Metadata key that lists the inputs and outputs that got an axis for samples, see :mod:`.whole_samples`.
WHOLE_KEY = "lutterfly.whole"

_NUMPY_TYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(bool)": "bool",
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output of the model.

    Attributes
    ----------
    name : str
    shape : list of int, str or None
        Its dimensions; one that is not fixed is a name, or None.
    type : str
        The type in ONNX Runtime's spelling, for example ``tensor(float)``.
    is_whole : bool
        Whether a sample is the whole tensor, whose first axis does not count samples, see :mod:`.whole_samples`.
    """

    name: str
    shape: list[int | str | None]
    type: str
    is_whole: bool = False

    @property
    def dtype(self) -> np.dtype:
        """The NumPy type of its arrays."""
        return np.dtype(_NUMPY_TYPES.get(self.type, self.type.removeprefix("tensor(").removesuffix(")")))

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one sample, after the batch axis if there is one; dimensions that are not fixed count as 1."""
        sizes = tuple(size if isinstance(size, int) else 1 for size in self.shape)
        return sizes if self.is_whole else sizes[1:]

    def with_samples(self, array: np.ndarray) -> np.ndarray:
        """Return the array with a first axis that counts samples: a single whole sample gets one, a stack has it."""
        shape = self.sample_shape
        is_flat = self.is_whole and isinstance(array, np.ndarray) and array.shape[1:] == shape[1:]
        return array.reshape(-1, *shape) if is_flat and array.size and len(array) % shape[0] == 0 else array


def sample_count(arrays: Mapping[str, np.ndarray]) -> int:
    """Return the number of samples in arrays whose first axis counts them, which is equal in all."""
    return len(next(iter(arrays.values())))


def contents(array: np.ndarray) -> bytes:
    """Return the contents of an array as bytes that can be compared; for strings the length and the UTF-8 of each."""
    if array.dtype.kind not in "OU":
        return array.tobytes()
    encoded = [str(text).encode() for text in array.ravel()]
    return b"".join(len(text).to_bytes(4, "little") + text for text in encoded)


def differing_bytes(found: np.ndarray, expected: np.ndarray) -> int:
    """Count the bytes in which two arrays of numbers, of one shape and type, differ."""
    return int(np.count_nonzero(found.view(np.uint8) != expected.view(np.uint8)))


def describe_model(model: Model) -> tuple[list[TensorInfo], list[TensorInfo]]:
    """Return the inputs and outputs of an ONNX model that ONNX Runtime runs."""
    # It takes a third of a second to import, which checks of the command line need not wait for.
    from .runtime import open_with, plain_options  # noqa: PLC0415

    session = open_with(model.data, plain_options())
    whole = json.loads(session.get_modelmeta().custom_metadata_map.get(WHOLE_KEY, "[]"))
    infos = [
        [
            TensorInfo(value.name, value.shape[value.name in whole :], value.type, value.name in whole)
            for value in values
        ]
        for values in (session.get_inputs(), session.get_outputs())
    ]
    return infos[0], infos[1]


def check_feeds(inputs: Sequence[TensorInfo], feeds: Mapping[str, np.ndarray]) -> int:
    """Check every array against its input; return the number of samples in the batch.

    Raises
    ------
    TypeError, ValueError
        If a name, a type or a shape is wrong, or an input is missing.
    """
    known = {info.name: info for info in inputs}
    for name in feeds:
        if name not in known:
            raise ValueError(f"input must be one of {', '.join(known)}, not {name}")
    for name, info in known.items():
        if name not in feeds:
            raise ValueError(f"input {name} must be given, and is missing")
        check_feed(info, feeds[name])
    batches = {name: len(known[name].with_samples(array)) for name, array in feeds.items()}
    if len(set(batches.values())) > 1:
        raise ValueError(f"the batches of all inputs must be equal, not {batches}")
    return next(iter(batches.values()))


def check_feed(info: TensorInfo, array: np.ndarray) -> None:
    """Check the array of one input.

    Raises
    ------
    TypeError, ValueError
        If its type or shape is wrong.
    """
    if not isinstance(array, np.ndarray) or array.dtype != info.dtype:
        found = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(f"input {info.name} must be an array of {info.dtype}, not {found}")
    array = info.with_samples(array)
    if array.ndim != 1 + len(info.sample_shape) or array.shape[1:] != info.sample_shape or not len(array):
        shape = ", ".join(map(str, ("batch", *info.sample_shape)))
        raise ValueError(f"input {info.name} must have the shape [{shape}], not {list(array.shape)}")


# Files of tensors, as the command line names them for inputs and outputs.


def assign(kind: str, words: Sequence[str], infos: Sequence[TensorInfo]) -> dict[str, str]:
    """Return files by the name of their tensor, from ``NAME=FILE`` or, where there is only one tensor, ``FILE``.

    Both names and files may contain ``=``.
    """
    known = [info.name for info in infos]
    files: dict[str, str] = {}
    for word in words:
        # The longest name counts, as a name may be the beginning of another one.
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
    """Load the arrays of inputs from their files."""
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
    """Load the samples of all inputs, from an archive with an array for each, or from a file for the only input.

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
    """Load the class of each sample, int64[samples], from 0 to ``classes - 1``.

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
    """Refuse NaN and infinity, for which there is no code: QuantizeLinear does not define them."""
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return
    place = tuple(map(int, np.argwhere(~np.isfinite(array))[0]))
    raise ValueError(f"{path}: input {name} must be finite, not {array[place]} at {list(place)}")
