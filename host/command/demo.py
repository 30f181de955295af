"""The demo: handwritten digits, classified by the simulated accelerator and by ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...examples import digits
from ...golden.config import Config
from ..files.terminal import Progress, silent
from ..model import executed, runtime
from ..model.arrays import differing_bytes
from ..session.session import InferenceSession

ACCURACY_WANTED = 0.97


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The results of the demo.

    Attributes
    ----------
    predictions, reference_predictions, labels : int64[images]
        Classes of the accelerator and of ONNX Runtime, and the true ones.
    bytes, mismatched_bytes : int
        Bytes of the model's outputs, compared with ONNX Runtime's.
    cycles, predicted_cycles : int
        Cycles of one image, with the program resident.
    macs : int
        Multiply-accumulates of one image.
    multipliers : int
        Multipliers of the array.
    """

    predictions: npt.NDArray[np.int64]
    reference_predictions: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    bytes: int
    mismatched_bytes: int
    cycles: int
    predicted_cycles: int
    macs: int
    multipliers: int

    @property
    def accuracy(self) -> float:
        """The share of the images that the accelerator classifies rightly."""
        return float(np.mean(self.predictions == self.labels))

    @property
    def reference_accuracy(self) -> float:
        """The share of the images that ONNX Runtime classifies rightly."""
        return float(np.mean(self.reference_predictions == self.labels))

    @property
    def utilisation(self) -> float:
        """The share of the multipliers' cycles that the network's multiply-accumulates take."""
        return self.macs / (self.cycles * self.multipliers)

    @property
    def is_right(self) -> bool:
        """Whether all bytes are equal, where they can be compared, and the accuracy is reached."""
        comparable = runtime.probe() is None
        return self.accuracy >= ACCURACY_WANTED and not (comparable and self.mismatched_bytes)


def run(config: Config, *, form: str = "qdq", progress: Progress = silent) -> DemoResult:
    """Classify the held-out digits.

    Parameters
    ----------
    config : Config
    form : str
        One of the forms of :mod:`lutterfly.examples.digits`.
    progress : callable
    """
    path = digits.model_path(form)
    session = InferenceSession(path, config, progress=progress)
    images = digits.images()
    feeds = {session.get_inputs()[0].name: images}
    found = session.run(None, feeds)[0]
    expected = executed.open_session(session.loaded.model).run(None, feeds)[0]
    return DemoResult(
        predictions=found.argmax(axis=1),
        reference_predictions=expected.argmax(axis=1),
        labels=digits.labels(),
        bytes=expected.nbytes,
        mismatched_bytes=differing_bytes(found, expected),
        cycles=session.counters[-1]["cycles"],
        predicted_cycles=session.program.predicted_cycles,
        macs=sum(layer.macs for layer in session.program.layers),
        multipliers=config.multipliers,
    )


def picture(images: npt.NDArray[np.float32]) -> str:
    """Draw images float32[images, 1, 8, 8] from 0 to 1 side by side, in characters."""
    shades = " .:-=+*#%@"
    levels = np.minimum((images[:, 0] * len(shades)).astype(int), len(shades) - 1)
    return "\n".join(
        "   ".join("".join(2 * shades[level] for level in row) for row in rows) for rows in levels.transpose(1, 0, 2)
    )
