"""The plan: all decisions on a network on its way to a core's program, in frozen states.

Each state adds the decisions of a pass to the state before. So a function of a `Placed` can use the addresses of
tensors, and a function of an `Executed` cannot.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

from ...golden.config import Config
from ...golden.memories import LocalMemory
from ...golden.program.outline import LayerOutline, Tried
from ...golden.units import Queue
from ..graph import Graph
from .network import Network, Span
from .operation import Command, Cut, Job, Operation, SyncedCommand, TimedCommand
from .storage import Arrival, LiveRange, Segment, Storage


@dataclass(frozen=True, eq=False, kw_only=True)
class LaidOut(Network):
    """The state in which tensors have a layout.

    Attributes
    ----------
    storages : mapping of str to Storage
        The layout of each tensor in the feature memory, and, from :class:`Placed` on, its address if it is ever whole
        there.
    """

    storages: Mapping[str, Storage]


@dataclass(frozen=True, eq=False, kw_only=True)
class Executed(LaidOut):
    """The state in which the layers have operations.

    Attributes
    ----------
    operations : tuple of Operation
        The operation of each layer; from :class:`Placed` on that of its parts.
    """

    operations: tuple[Operation, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Placed(Executed):
    """The state in which tensors have live ranges and addresses in the feature memory.

    Attributes
    ----------
    spans : mapping of str to tuple of int
        Live range of a tensor that is whole in the feature memory: first and last layer, both included. Tensors that
        never are whole are missing, and so are views.
    cuts : mapping of int to tuple
        For each layer that reads or writes a tensor that is not whole there, the size of its parts, and the address of
        each buffer for the parts of each such tensor.
    """

    spans: Mapping[str, Span]
    cuts: Mapping[int, tuple[Cut, Mapping[str, tuple[int, ...]]]]

    def partial(self, index: int) -> frozenset[str]:
        """The inputs and outputs of a layer that are not whole in the feature memory while it runs."""
        return self.partial_with(self.spans, index)


@dataclass(frozen=True, eq=False, kw_only=True)
class Segmented(Placed):
    """The state in which resident constants are chosen.

    Attributes
    ----------
    segments : mapping of LocalMemory to mapping of int to sequence of Segment
        The tiles of each layer in segments, whose constants are either resident or streamed.
    """

    segments: Mapping[LocalMemory, Mapping[int, Sequence[Segment]]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Divided(Segmented):
    """The state in which layers are divided into jobs.

    Attributes
    ----------
    jobs : tuple of Job
        The parts in which the layers are executed, in order; from :class:`Loaded` on with their constants.
    live_ranges : tuple of LiveRange
        The allocations in the feature memory with the jobs that use them, in the order of the first job.
    """

    jobs: tuple[Job, ...]
    live_ranges: tuple[LiveRange, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Addressed(Divided):
    """The state in which tensors have addresses in the arena.

    Attributes
    ----------
    external : mapping of str to int
        Address of each tensor in the arena.
    external_bytes : int
        Bytes of all these tensors, from the arena's start on.
    streamed_address : int
        Address of the streamed constants in the arena.
    """

    external: Mapping[str, int]
    external_bytes: int
    streamed_address: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Loaded(Addressed):
    """The state in which constants have addresses.

    Attributes
    ----------
    images : mapping of LocalMemory to bytes
        Contents that the prologue loads into the memories for constants, from their first unit on.
    arrivals : tuple of Arrival
        Loads into these memories in every inference.
    streamed : bytes
        The streamed constants, the source of these loads.
    """

    images: Mapping[LocalMemory, bytes]
    arrivals: tuple[Arrival, ...]
    streamed: bytes = dataclasses.field(repr=False)


@dataclass(frozen=True, eq=False, kw_only=True)
class Computing(Loaded):
    """The state in which the COMPUTE commands are known.

    Attributes
    ----------
    computes : tuple of list of Command
        The COMPUTE commands of each job.
    """

    computes: tuple[list[Command], ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Ordered(Computing):
    """A network with all of its commands.

    Attributes
    ----------
    commands : tuple of Command
        The commands of both queues, in an order in which they could run one by one; from :class:`Scheduled` on with
        their tokens, from :class:`Plan` on with their cycles as well, and so are ``computes``.
    """

    commands: tuple[Command, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Scheduled(Ordered):
    """A network of which is known what each command waits for."""

    commands: tuple[SyncedCommand, ...]

    @classmethod
    def of_commands(cls, before: Ordered, commands: Sequence[Command], **decided: Any) -> Self:
        """Make a plan in this state, with these commands in place of those before, in the same order."""
        made = dict(zip(before.commands, commands, strict=True))
        computes = tuple([made[command] for command in of_job] for of_job in before.computes)
        return cls.of(before, commands=tuple(commands), computes=computes, **decided)

    def queue(self, queue: Queue) -> Sequence[SyncedCommand]:
        """Return the commands of one queue."""
        return [command for command in self.commands if command.queue is queue]


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan(Scheduled):
    """All that is decided for a core, and its predicted cycles.

    Attributes
    ----------
    predictions : tuple of LayerOutline
        The layers.
    predicted_cycles : int
        The cycles until the core is done.
    """

    commands: tuple[TimedCommand, ...]
    predictions: tuple[LayerOutline, ...]
    predicted_cycles: int

    def queue(self, queue: Queue) -> Sequence[TimedCommand]:
        """Return the commands of one queue."""
        return cast("Sequence[TimedCommand]", super().queue(queue))

    def with_model_words(self, words: Mapping[str, int]) -> Plan:
        """Return the plan with the words of layers, by their names, in the model's order of channels, for the report.

        Numbers greater than all words of a layer belong to another way to read its input, and are ignored.
        """
        told = (
            dataclasses.replace(layer, model_words=words[layer.name])
            if layer.connections and words[layer.name] <= layer.dense_words
            else layer
            for layer in self.predictions
        )
        return dataclasses.replace(self, predictions=tuple(told))


# A network for the cores of an accelerator, with a plan for each core.


@dataclass(frozen=True, eq=False)
class Spread:
    """A finished network, on one core or several.

    Attributes
    ----------
    graph : Graph
        The executed graph, for one share of the samples.
    plans : tuple of Plan
        The plan of each core. Their addresses belong to one arena, and their predicted cycles to one run.
    external : mapping of str to tuple of int
        Addresses of the network's inputs and outputs in the arena: one, or one for each core if each has samples of its
        own.
    tried : tuple of Tried
        The candidates of which this plan is the fastest, see :mod:`.search`.
    """

    graph: Graph
    plans: tuple[Plan, ...]
    external: Mapping[str, tuple[int, ...]]
    tried: tuple[Tried, ...] = ()

    @classmethod
    def of_one(cls, plan: Plan) -> Spread:
        """Return the network of a single core's plan."""
        ends = (*plan.graph.inputs, *plan.graph.outputs)
        return cls(plan.graph, (plan,), {name: (plan.external[name],) for name in ends})

    @property
    def config(self) -> Config:
        """The configuration of the accelerator."""
        return self.plans[0].config

    @property
    def given(self) -> Graph:
        """The graph before compilation."""
        return self.plans[0].given or self.graph

    @property
    def shares(self) -> int:
        """The number of parts into which samples are divided among cores."""
        return len(self.external[self.graph.inputs[0]])

    @property
    def predicted_cycles(self) -> int:
        """The predicted cycles until every core is done."""
        return max(plan.predicted_cycles for plan in self.plans)
