"""Inference on the accelerator with the interface of ONNX Runtime's ``InferenceSession``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ...golden.config import Config
from ...golden.presets import DEFAULT_PRESET
from ..backend import DEFAULT_BACKEND, find_backend
from ..driver.driver import Driver
from ..driver.transport import Transport
from ..files.configuration import find_config
from ..files.terminal import Progress, silent
from ..model.arrays import TensorInfo, check_feeds, sample_count
from ..program import SpreadBy
from .loading import Given, HostPart, load


class InferenceSession:
    """A model on an accelerator: by default a simulated one, on the ideal bus.

    With ``backend="golden"`` the golden functions give the same bytes without an accelerator, on all processor cores;
    :func:`.verify.verify` shows that they are the same. There are no transport, driver and counters then.

    As with ONNX Runtime, several threads may call :meth:`run`. Several sessions may share a transport: each run has the
    accelerator to itself, and loads its program again if another's has taken its place.

    Parameters
    ----------
    path_or_bytes : str, Path, bytes, Model, Program or LoadedProgram
        An ONNX file, or a program that ``lutterfly compile`` made, or the contents of one.
    config : str, Path or Config
        Name of a preset, file, or the configuration itself.
    transport : Transport or None
        The accelerator; by default it is simulated, and the simulator is built on the first run.
    progress : callable
        Called with the build that is in progress.
    batch : int or None
        Samples of an inference, of each core if each has its own: by default those that a program was compiled for,
        and 1 for a model. Those of a fully connected network can share the weights that do not fit the accelerator's
        memory and are loaded in every inference; samples that are missing in the last one are computed without use.
    spread_by : SpreadBy or None
        The dimension that is divided among cores, if there are several: by default that of the program, and samples for
        a model.
    backend : str
        The implementation: "simulator", the accelerator at ``transport``, or "golden".

    Attributes
    ----------
    loaded : LoadedProgram
        The program and its models.
    program : Program
    batch : int
        Samples of an inference, of all cores.
    backend : Backend
        The implementation.

    Raises
    ------
    ValueError
        If the model is refused, or cannot be run in batches of that size; also if there is no such back-end, or it has
        no transport.
    """

    def __init__(
        self,
        path_or_bytes: Given,
        config: str | Path | Config = DEFAULT_PRESET,
        transport: Transport | None = None,
        *,
        progress: Progress = silent,
        batch: int | None = None,
        spread_by: SpreadBy | None = None,
        backend: str = DEFAULT_BACKEND,
    ):
        kind = find_backend(backend)
        if transport is not None:
            kind.need_accelerator("transport")
        self.config = find_config(config)
        self.loaded = load(path_or_bytes, self.config, batch=batch, spread_by=spread_by)
        self.program = self.loaded.program
        self.batch = self.program.batch
        self._progress = progress
        self._mixing: str | None = None
        self._inputs, self._outputs = self.loaded.ends
        self._head, self._tail = self.loaded.head_part, self.loaded.tail_part
        self.backend = kind(
            self.program, self.config, graph=lambda: self.loaded.graph, transport=transport, progress=progress
        )

    def get_inputs(self) -> list[TensorInfo]:
        """The model's inputs."""
        return list(self._inputs)

    def get_outputs(self) -> list[TensorInfo]:
        """The model's outputs."""
        return list(self._outputs)

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Run the model, :attr:`batch` samples at a time.

        Parameters
        ----------
        output_names : sequence of str or None
            The wanted outputs; None, or an empty sequence, for all.
        input_feed : mapping of str to array
            Every input by name; the first axis is the batch. Where a sample is a whole tensor of the file, its first
            axis included, an array of that shape is a sample, and a stack of them is several.

        Returns
        -------
        list of arrays
            The outputs in the order of their names; the first axis is the batch. Such tensors are stacked as the inputs
            are.

        Raises
        ------
        TypeError, ValueError
            If a name, a type or a shape is wrong; nothing has run then.
        AcceleratorError
            If the accelerator stops or does not answer in time.
        """
        if isinstance(output_names, str) or not isinstance(output_names, Sequence | None):
            raise TypeError(f"output_names must be a sequence of names, not {type(output_names).__name__}")
        if not isinstance(input_feed, Mapping):
            raise TypeError(f"input_feed must be a mapping of names to arrays, not {type(input_feed).__name__}")
        known = [info.name for info in self._outputs]
        names = output_names or known
        for name in names:
            if name not in known:
                raise ValueError(f"output must be one of {', '.join(known)}, not {name}")
        samples = check_feeds(self._inputs, input_feed)
        if samples > 1:
            self._check_independent(samples)
        feeds = {info.name: info.with_samples(input_feed[info.name]) for info in self._inputs}
        results = self.run_samples(feeds)
        if any(feeds[name].ndim > array.ndim for name, array in input_feed.items()):
            whole = {info.name for info in self._outputs if info.is_whole}
            results |= {name: results[name].reshape(-1, *results[name].shape[2:]) for name in whole}
        return [results[name] for name in names]

    def run_samples(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run all samples; return all outputs by name, as if each sample was run alone. :meth:`run` has checked
        ``feeds``.

        Raises
        ------
        AcceleratorError
            As :meth:`run`.
        """
        samples = sample_count(feeds)
        parts = [
            {name: array[start : start + self.batch] for name, array in feeds.items()}
            for start in range(0, samples, self.batch)
        ]

        def heads() -> Iterator[list[np.ndarray]]:
            for number, part in enumerate(parts):
                self._progress("running samples", number * self.batch, samples)
                yield self.head(part)

        with contextlib.closing(self.backend.infer(heads())) as inferences:
            results = [self.tail(part, outputs) for part, outputs in zip(parts, inferences, strict=True)]
        return {info.name: np.concatenate([result[info.name] for result in results]) for info in self._outputs}

    def _check_independent(self, samples: int) -> None:
        """Refuse several samples where ONNX Runtime gives other outputs for a batch than for each of its samples."""
        if self._mixing is None:
            # Only batches need this import.
            from ..model.independence import mixing_node  # noqa: PLC0415

            self._mixing = mixing_node(self.loaded.model)
        if self._mixing:
            raise ValueError(
                f"input must be one sample, not {samples}: {self._mixing} makes the outputs of a batch "
                "other than those of its samples; run them one by one"
            )

    @property
    def counters(self) -> list[dict[str, int]]:
        """Performance counters of each inference of the last :meth:`run`, in any thread, see
        :meth:`.driver.Driver.counters`."""
        return self.backend.counters

    @property
    def core_counters(self) -> list[list[dict[str, int]]]:
        """The counters of each core."""
        return self.backend.core_counters

    @property
    def transport(self) -> Transport:
        """The accelerator; if it is simulated, the simulator is built on the first use."""
        return self.backend.transport

    def driver(self) -> Driver:
        """The driver of the program; made, with the simulator, and loaded on the first call."""
        return self.backend.driver()

    def head(self, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Run the head for one inference; return the arrays of the program's input ports.

        ``feeds`` are at most :attr:`batch` samples; the last one is repeated in place of missing ones.
        """
        samples = [sample | _run(self._head, sample) for sample in single_samples(feeds)]
        samples += samples[-1:] * (self.batch - len(samples))
        return [np.concatenate([sample[port.name] for sample in samples]) for port in self.program.inputs]

    def tail(self, feeds: Mapping[str, np.ndarray], outputs: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Run the tail for one inference on the arrays of the output ports; return the model's outputs by name."""
        split = {
            port.name: array.reshape(self.batch, -1, *array.shape[1:])
            for port, array in zip(self.program.outputs, outputs, strict=True)
        }
        samples = []
        for index, sample in enumerate(single_samples(feeds)):
            values = {name: arrays[index] for name, arrays in split.items()}
            samples.append(values | _run(self._tail, {**sample, **values}))
        return {info.name: np.concatenate([sample[info.name] for sample in samples]) for info in self._outputs}


def single_samples(feeds: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Return the samples of a batch, each with a batch axis of 1."""
    return [{name: array[index : index + 1] for name, array in feeds.items()} for index in range(sample_count(feeds))]


def _run(part: HostPart, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run the head or the tail on one sample; raise ValueError if ONNX Runtime cannot compute it."""
    if not part:
        return {}
    # Where there are nodes, it is imported already.
    from ..model.runtime import RUNTIME_ERRORS, reason_of  # noqa: PLC0415

    try:
        return part.run(values)
    except RUNTIME_ERRORS as error:
        message = f"what runs on the host must be defined for every input, and is not for this one: {reason_of(error)}"
        raise ValueError(message) from error
