"""The demo network's files: handwritten digits, quantised in two forms, and the images held out from its training.

``train_digits.py`` made them. Source of the images: scikit-learn's `load_digits`, which is the test part of E. Alpaydin
and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998 (CC BY 4.0).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

#: QDQ and QOperator with int8 activations, and QOperator with uint8 activations; weights are int8 in each.
FORMS = ("qdq", "qop", "uint8")
#: Pixels count from 0 to 16; the network takes them divided by this.
FULL_SCALE = 16
_FOLDER = Path(__file__).parent


def model_path(form: str = "qdq") -> Path:
    """The ONNX file of the network in one of ``FORMS``.

    Its input is ``pixels``, float32[images, 1, 8, 8], and its output ``logits``, float32[images, 10].

    Raises
    ------
    ValueError
        If there is no such form.
    """
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}, not {form}")
    return _FOLDER / f"digits_{form}.onnx"


def fast_model_path() -> Path:
    """The ONNX file of another network for them, in QDQ form, with three fast pointwise convolutions.

    ``train_fpc_digits.py`` made it. Its input and output are those of the others.
    """
    return _FOLDER / "digits_fpc.onnx"


def binary_model_path() -> Path:
    """The ONNX file of another one, whose layers are binary but the first.

    ``train_binary_digits.py`` made it. Its input and output are those of the others.
    """
    return _FOLDER / "digits_binary.onnx"


def brevitas_model_path() -> Path:
    """The ONNX file of a binary network for them, in QONNX form, as Brevitas exports it.

    ``train_brevitas_digits.py`` made it. Its input and output are those of the others.
    """
    return _FOLDER / "digits_brevitas.onnx"


def as_input(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Convert ``images``, uint8[images, 8, 8] from 0 to 16, to the network's input float32[images, 1, 8, 8] from 0 to
    1."""
    return images[:, np.newaxis].astype(np.float32) / np.float32(FULL_SCALE)


def images() -> npt.NDArray[np.float32]:
    """The held-out images as the network takes them: float32[360, 1, 8, 8] from 0 to 1."""
    with np.load(_FOLDER / "digits_test.npz") as held_out:
        return as_input(held_out["images"])


def labels() -> npt.NDArray[np.int64]:
    """The digits on the held-out images: int64[360]."""
    with np.load(_FOLDER / "digits_test.npz") as held_out:
        return held_out["labels"].astype(np.int64)
