"""The plan: what the compiler's passes work on and add to, from a quantised graph to a core's synchronised commands."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...golden.config import Config
from ...golden.memories import LocalMemory
from ...golden.program.outline import LayerPrediction, Tried
from ...golden.units import Queue
from ..graph import Graph
from .network import Network
from .operation import Command, Cut, Job, Operation
from .storage import Arrival, Residence, Segment, Span, Storage


@dataclass
class Plan(Network):
    """A network on its way to a core's program. Passes fill it from the top to the bottom.

    Attributes
    ----------
    given : Graph or None
        What the passes began with, if it is to be told; ``graph`` is what they make of it.
    storages : dict of str to Storage
        How each tensor lies in the feature memory, and where, if it ever is whole there.
    spans : dict of str to tuple of int
        First and last layer, both included, during which a tensor lies whole in the feature memory. Tensors that never
        do are missing, and so are views.
    cuts : dict of int to tuple
        For each layer that reads or writes a tensor which is not whole there: the size of its parts, and the address of
        each buffer for the parts of each such tensor.
    operations : list of Operation
        How each layer is executed.
    jobs : list of Job
        The parts in which the layers are executed, in order.
    residences : list of Residence
        What lies in the feature memory for which of them, in the order of the first.
    segments : dict of LocalMemory to dict of int to list of Segment
        Which tiles of each layer have weights and parameters that stay in their memory, and which are streamed.
    images : dict of LocalMemory to bytes
        What the prologue loads into the memories for constants, from their first unit on.
    arrivals : list of Arrival
        What is loaded into them in every inference.
    streamed : bytes
        Where that comes from.
    external : dict of str to int
        Address in the arena of each tensor that lies there.
    external_bytes : int
        What they take, from the arena's start on.
    streamed_address : int
        Where in the arena what is streamed lies.
    computes : list of list of Command
        The COMPUTE commands of each job.
    commands : list of Command
        Of both queues, in an order in which they could run one by one.
    predictions : list of LayerPrediction
    predicted_cycles : int
        Until the core is done.
    """

    given: Graph | None = None
    storages: dict[str, Storage] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)
    cuts: dict[int, tuple[Cut, dict[str, tuple[int, ...]]]] = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    residences: list[Residence] = field(default_factory=list)
    segments: dict[LocalMemory, dict[int, list[Segment]]] = field(default_factory=dict)
    images: dict[LocalMemory, bytes] = field(default_factory=dict)
    arrivals: list[Arrival] = field(default_factory=list)
    streamed: bytes = field(default=b"", repr=False)
    external: dict[str, int] = field(default_factory=dict)
    external_bytes: int = 0
    streamed_address: int = 0
    computes: list[list[Command]] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    predictions: list[LayerPrediction] = field(default_factory=list)
    predicted_cycles: int = 0

    def partial(self, index: int, spans: Mapping[str, Span | None] | None = None) -> frozenset[str]:
        """The inputs and outputs of a layer that are not whole in the feature memory while it runs."""
        layer, spans = self.graph.layers[index], self.spans if spans is None else spans
        return frozenset(
            name
            for name in (*layer.fetched, layer.output)
            if not (span := spans.get(self.root(name))) or not span[0] <= index <= span[1]
        )

    def tell_model_words(self, words: Mapping[str, int]) -> None:
        """Say in the predictions how many words layers, by their names, have in the model's order of channels.

        More than a layer has in all are of another way to read its input, and say nothing of this one.
        """
        self.predictions = [
            dataclasses.replace(layer, model_words=words[layer.name])
            if layer.connections and words[layer.name] <= layer.dense_words
            else layer
            for layer in self.predictions
        ]

    def queue(self, queue: Queue) -> list[Command]:
        """The commands of one queue."""
        return [command for command in self.commands if command.queue is queue]


# Spread: a network over the cores of an accelerator, with a plan for each.


@dataclass
class Spread:
    """A finished network, on one core or several.

    Attributes
    ----------
    graph : Graph
        The network as it is executed, of one share of the samples.
    plans : list of Plan
        For each core. Their addresses are those of one arena, and so are their predicted cycles those of one run.
    external : mapping of str to tuple of int
        Addresses in the arena of the network's inputs and outputs: one, or one for each core where each has samples of
        its own.
    tried : tuple of Tried
        The candidates of which this one is the fastest, see :mod:`.search`.
    """

    graph: Graph
    plans: list[Plan]
    external: Mapping[str, tuple[int, ...]]
    tried: tuple[Tried, ...] = ()

    @classmethod
    def of_one(cls, plan: Plan) -> Spread:
        """That of one core."""
        ends = (*plan.graph.inputs, *plan.graph.outputs)
        return cls(plan.graph, [plan], {name: (plan.external[name],) for name in ends})

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
