"""What a model's inputs and outputs look like, as ONNX Runtime describes them, and the check of a user's arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .model import Model

#: Names the inputs and outputs that got an axis for samples, see :mod:`.whole_samples`.
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
        A dimension that is not fixed has its name, or None.
    type : str
        As ONNX Runtime spells it, for example ``tensor(float)``.
    is_whole : bool
        Whether a sample is the whole tensor, whose first axis is none of samples, see :mod:`.whole_samples`.
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
        """An array whose first axis counts samples: of whole ones that are given alone, or one after the other."""
        shape = self.sample_shape
        is_flat = self.is_whole and isinstance(array, np.ndarray) and array.shape[1:] == shape[1:]
        return array.reshape(-1, *shape) if is_flat and array.size and len(array) % shape[0] == 0 else array


def sample_count(arrays: Mapping[str, np.ndarray]) -> int:
    """Samples in arrays whose first axis counts them, as many in each."""
    return len(next(iter(arrays.values())))


def contents(array: np.ndarray) -> bytes:
    """What an array holds, to compare: the bytes of its elements; of strings each one's length and its UTF-8."""
    if array.dtype.kind not in "OU":
        return array.tobytes()
    encoded = [str(text).encode() for text in array.ravel()]
    return b"".join(len(text).to_bytes(4, "little") + text for text in encoded)


def differing_bytes(found: np.ndarray, expected: np.ndarray) -> int:
    """How many bytes of two arrays of numbers, of one shape and type, differ."""
    return int(np.count_nonzero(found.view(np.uint8) != expected.view(np.uint8)))


def describe_model(model: Model) -> tuple[list[TensorInfo], list[TensorInfo]]:
    """Inputs and outputs of an ONNX model that ONNX Runtime runs."""
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
    """Check every array against its input; returns the samples in the batch.

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
