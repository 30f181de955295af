"""Spread: a network over the cores of an accelerator, with a plan for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ....golden.config import Config
from ...graph import Graph
from .plan import Plan


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
    """

    graph: Graph
    plans: list[Plan]
    external: Mapping[str, tuple[int, ...]]

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
