"""Shuffles: channels in the order in which what moves them copies whole runs, or nothing, and readers follow."""

from __future__ import annotations

import dataclasses

from ...graph import ChannelRule
from ..data.plan import Plan
from .channel_parts import parts_of, reordered


def sort_shuffles(plan: Plan) -> Plan:
    """Leave the channels that an arrangement takes in the order in which they lie, wherever that order is free.

    What reads them has its weights in that order then. A shuffle of all channels moves nothing any more, and one of
    some takes them in runs instead of one by one. The first arrangement comes first: of another one that reads it the
    channels lie as it has put them.
    """
    graph, parts = plan.graph, parts_of(plan.graph)
    is_changed = False
    for layer in graph.layers:
        if layer.channel_rule(*graph.ends(layer)) is not ChannelRule.MOVED:
            continue
        # What is moved is a single part: only joined channels, and those tied to them, are several.
        (part,), now = parts[layer.output], parts.order(layer.output)
        if part.is_fixed:
            continue
        part.order = layer.order_in_runs(graph.tensors[layer.output].shape, now, parts.order(layer.input))
        is_changed |= bool((part.order != now).any())
    return dataclasses.replace(plan, graph=reordered(graph, parts)) if is_changed else plan
