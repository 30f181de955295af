"""The plan: all that is known of a network on its way to a core's program, in frozen states.

Each state is the one before with what a pass has decided. So what takes a `Placed` may ask where tensors lie, and
whoever has no more than an `Executed` cannot.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...golden.config import Config
from ...golden.memories import LocalMemory
from ...golden.program.outline import LayerOutline, Tried
from ...golden.units import Queue
from ..graph import Graph
from .network import Network, Span
from .operation import Command, Cut, Job, Operation
from .storage import Arrival, Residence, Segment, Storage


@dataclass(frozen=True, eq=False, kw_only=True)
class LaidOut(Network):
    """A network whose tensors have a layout.

    Attributes
    ----------
    storages : mapping of str to Storage
        How each tensor lies in the feature memory, and, from :class:`Placed` on, where, if it ever is whole there.
    """

    storages: Mapping[str, Storage]


@dataclass(frozen=True, eq=False, kw_only=True)
class Executed(LaidOut):
    """A network of which is known how its layers are executed.

    Attributes
    ----------
    operations : tuple of Operation
        Of each layer; from :class:`Placed` on as its parts are.
    """

    operations: tuple[Operation, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Placed(Executed):
    """A network whose tensors have a place in the feature memory.

    Attributes
    ----------
    spans : mapping of str to tuple of int
        First and last layer, both included, during which a tensor lies whole in the feature memory. Tensors that never
        do are missing, and so are views.
    cuts : mapping of int to tuple
        For each layer that reads or writes a tensor which is not whole there: the size of its parts, and the address of
        each buffer for the parts of each such tensor.
    """

    spans: Mapping[str, Span]
    cuts: Mapping[int, tuple[Cut, Mapping[str, tuple[int, ...]]]]

    def partial(self, index: int) -> frozenset[str]:
        """The inputs and outputs of a layer that are not whole in the feature memory while it runs."""
        return self.partial_with(self.spans, index)


@dataclass(frozen=True, eq=False, kw_only=True)
class Segmented(Placed):
    """A network of which is known what stays on the chip.

    Attributes
    ----------
    segments : mapping of LocalMemory to mapping of int to sequence of Segment
        Which tiles of each layer have weights and parameters that stay in their memory, and which are streamed.
    """

    segments: Mapping[LocalMemory, Mapping[int, Sequence[Segment]]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Divided(Segmented):
    """A network whose layers are divided into jobs.

    Attributes
    ----------
    jobs : tuple of Job
        The parts in which the layers are executed, in order; from :class:`Loaded` on with their constants.
    residences : tuple of Residence
        What lies in the feature memory for which of them, in the order of the first.
    """

    jobs: tuple[Job, ...]
    residences: tuple[Residence, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Addressed(Divided):
    """A network whose tensors have their addresses in the arena.

    Attributes
    ----------
    external : mapping of str to int
        Address in the arena of each tensor that lies there.
    external_bytes : int
        What they take, from the arena's start on.
    streamed_address : int
        Where in the arena what is streamed lies.
    """

    external: Mapping[str, int]
    external_bytes: int
    streamed_address: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Loaded(Addressed):
    """A network whose constants have a place.

    Attributes
    ----------
    images : mapping of LocalMemory to bytes
        What the prologue loads into the memories for constants, from their first unit on.
    arrivals : tuple of Arrival
        What is loaded into them in every inference.
    streamed : bytes
        Where that comes from.
    """

    images: Mapping[LocalMemory, bytes]
    arrivals: tuple[Arrival, ...]
    streamed: bytes = dataclasses.field(repr=False)


@dataclass(frozen=True, eq=False, kw_only=True)
class Computing(Loaded):
    """A network with all that is computed.

    Attributes
    ----------
    computes : tuple of list of Command
        The COMPUTE commands of each job.
    """

    computes: tuple[list[Command], ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Scheduled(Computing):
    """A network with all of its commands.

    Attributes
    ----------
    commands : tuple of Command
        Of both queues, in an order in which they could run one by one.
    """

    commands: tuple[Command, ...]

    def queue(self, queue: Queue) -> list[Command]:
        """The commands of one queue."""
        return [command for command in self.commands if command.queue is queue]


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan(Scheduled):
    """All that is decided for a core, and what it takes.

    Attributes
    ----------
    predictions : tuple of LayerOutline
    predicted_cycles : int
        Until the core is done.
    """

    predictions: tuple[LayerOutline, ...]
    predicted_cycles: int

    def with_model_words(self, words: Mapping[str, int]) -> Plan:
        """Say in the predictions how many words layers, by their names, have in the model's order of channels.

        More than a layer has in all are of another way to read its input, and say nothing of this one.
        """
        told = (
            dataclasses.replace(layer, model_words=words[layer.name])
            if layer.connections and words[layer.name] <= layer.dense_words
            else layer
            for layer in self.predictions
        )
        return dataclasses.replace(self, predictions=tuple(told))


# Spread: a network over the cores of an accelerator, with a plan for each.


@dataclass(frozen=True, eq=False)
class Spread:
    """A finished network, on one core or several.

    Attributes
    ----------
    graph : Graph
        The network as it is executed, of one share of the samples.
    plans : tuple of Plan
        For each core. Their addresses are those of one arena, and so are their predicted cycles those of one run.
    external : mapping of str to tuple of int
        Addresses in the arena of the network's inputs and outputs: one, or one for each core where each has samples of
        its own.
    tried : tuple of Tried
        The candidates of which this one is the fastest, see :mod:`.search`.
    """

    graph: Graph
    plans: tuple[Plan, ...]
    external: Mapping[str, tuple[int, ...]]
    tried: tuple[Tried, ...] = ()

    @classmethod
    def of_one(cls, plan: Plan) -> Spread:
        """That of one core."""
        ends = (*plan.graph.inputs, *plan.graph.outputs)
        return cls(plan.graph, (plan,), {name: (plan.external[name],) for name in ends})

    @property
    def config(self) -> Config:
        """The accelerator."""
        return self.plans[0].config

    @property
    def given(self) -> Graph:
        """What the compiler began with."""
        return self.plans[0].given or self.graph

    @property
    def shares(self) -> int:
        """In how many parts samples are handed to cores."""
        return len(self.external[self.graph.inputs[0]])

    @property
    def predicted_cycles(self) -> int:
        """Until every core is done."""
        return max(plan.predicted_cycles for plan in self.plans)
