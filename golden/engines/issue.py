"""What the issue stage has to know of an engine: its steps, words and weight words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..config import Config


@dataclass(frozen=True, kw_only=True)
class FurtherResults:
    """Results of a window beside its first one: each as many lanes, and in the same tile.

    Attributes
    ----------
    count, pitch : str
        The fields of the engine's commands that say how many there are, and how far apart results are, in bytes.
    most : callable
        Configuration to how many there are at most.
    """

    count: str
    pitch: str
    most: Callable[[Config], int]


@dataclass(frozen=True, kw_only=True)
class Issue:
    """How the windows of an engine are issued.

    Attributes
    ----------
    weight_words : str or None
        The field that says how many weight words a tile has; so many last steps of a window take one each. None if the
        engine takes no weights.
    read_steps : callable or None
        Command and configuration to the steps of a window, the first ones and at least one, that read their word; the
        words of the others count as null whatever stands at their addresses. In expressions that mean the same for
        NumPy integers and for Amaranth values. None for all.
    masks_words : bool
        Step lists say how many bytes of a word count.
    has_streams : bool
        The windows of an inner loop are one stream of words: each but the first may leave out ``skip`` steps, and its
        sum may begin at any step from there on. Else ``skip`` must be zero, and a sum begins at the first step.
    is_burst : bool
        The steps of a window come one after the other, and its results likewise, ``lanes`` a cycle, the first
        ``latency`` after the first word. Commands wait for every earlier result.
    further : FurtherResults or None
        None if a window has one result, or those of a burst, which lie side by side. The results of a window come one
        after the other, in successive cycles.
    fields : tuple of str
        Fields of the engine's commands that the hardware wants to know with every step.
    """

    weight_words: str | None = None
    read_steps: Callable[[Any, Config], Any] | None = None
    masks_words: bool = False
    has_streams: bool = False
    is_burst: bool = False
    further: FurtherResults | None = None
    fields: tuple[str, ...] = ()

    def steps_read(self, command: Mapping[str, int], config: Config) -> int:
        """The steps of a window that read their word."""
        return command["steps"] if self.read_steps is None else int(self.read_steps(command, config))

    def tile_weight_words(self, command: Mapping[str, int]) -> int:
        """Weight words of a tile."""
        return 0 if self.weight_words is None else command[self.weight_words]

    def most_further(self, config: Config) -> int:
        """Results of a window beside its first one at most."""
        return 0 if self.further is None else self.further.most(config)

    def results(self, command: Mapping[str, int]) -> int:
        """Results of a window, those of a burst as one."""
        return 1 if self.further is None else 1 + command.get(self.further.count, 0)

    def result_offsets(self, command: Mapping[str, int]) -> list[int]:
        """Where the results of a window lie, in bytes from its first one on."""
        if self.further is None:
            return [0]
        return [number * command.get(self.further.pitch, 0) for number in range(self.results(command))]


def comes_too_early(steps: Any, further: Any) -> Any:
    """Whether a command's first result could come among those of the command before it, of the same engine.

    Windows follow one another without a gap, also those of two commands: the first result of a window of ``steps``
    steps comes so many cycles after the first one of the window before, which has ``further`` results more, one in each
    cycle. In expressions that mean the same for integers and for Amaranth values.
    """
    return steps <= further


#: Words only, one each step, as of a pooling.
ANY_ISSUE = Issue()
