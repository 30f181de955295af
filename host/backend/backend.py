"""The contract of back-ends: from what a head gives to what a tail takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

import numpy as np

from ...golden.config import Config
from ...golden.program.program import Program
from ..driver.driver import Driver
from ..driver.transport import Transport
from ..files.terminal import Progress, silent
from ..graph import Graph

#: The ONNX tensors at the ports of a program, in their order: int8 or uint8.
Arrays = Sequence[np.ndarray]


class Backend(ABC):
    """The implementation of the inferences of one program; several threads may use it.

    Parameters
    ----------
    program : Program
    config : Config
        The configuration of the program.
    graph : callable
        Gives the graph of the program, which may have to be made first.
    transport : Transport or None
        The accelerator, for a back-end that has one.
    progress : callable
        Called with the name of a task that takes long.

    Attributes
    ----------
    name : str
        Its name for users.
    title : str
        The place where inferences are computed, for people.
    has_accelerator : bool
        Whether there is an accelerator, with a transport, a driver and counters.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    has_accelerator: ClassVar[bool] = False

    def __init__(
        self,
        program: Program,
        config: Config,
        *,
        graph: Callable[[], Graph],
        transport: Transport | None = None,
        progress: Progress = silent,
    ):
        self.program, self.config = program, config
        self._make_graph, self._transport, self._progress = graph, transport, progress
        self._set_up()

    @abstractmethod
    def _set_up(self) -> None:
        """Make the attributes that a back-end has beyond its parameters."""

    @classmethod
    def need_accelerator(cls, what: str) -> None:
        """Raise ValueError if there is no accelerator, to which ``what`` belongs."""
        if not cls.has_accelerator:
            raise ValueError(
                f"{what} must be left out with the back-end {cls.name}, which has no accelerator; "
                "leave it out, or take the back-end simulator"
            )

    @abstractmethod
    def prepare(self) -> None:
        """Prepare everything for which the first inference would wait."""

    @abstractmethod
    def infer(self, inputs: Iterable[Arrays]) -> Iterator[list[np.ndarray]]:
        """Compute inferences, in order.

        Parameters
        ----------
        inputs : iterable of sequences of int8 or uint8 arrays
            For each inference the ONNX tensors of the program's input ports. They are taken as they are needed, some
            of them ahead.

        Yields
        ------
        list of int8 or uint8 arrays
            For each inference the ONNX tensors of the output ports. A caller that does not take them all closes the
            iterator.

        Raises
        ------
        TypeError, ValueError
            If an input is of the wrong type or shape.
        """

    @property
    def counters(self) -> list[dict[str, int]]:
        """Performance counters of each inference of the last :meth:`infer`, see :meth:`.driver.Driver.counters`.

        Raises
        ------
        ValueError
            If there is no accelerator. All members below raise it too.
        """
        self.need_accelerator("counters")
        raise NotImplementedError

    @property
    def core_counters(self) -> list[list[dict[str, int]]]:
        """The same of each core."""
        self.need_accelerator("core_counters")
        raise NotImplementedError

    @property
    def transport(self) -> Transport:
        """The accelerator."""
        self.need_accelerator("transport")
        raise NotImplementedError

    def driver(self) -> Driver:
        """The driver of the program, which is loaded."""
        self.need_accelerator("driver")
        raise NotImplementedError
