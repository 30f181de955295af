"""Cuts: on a bus that several cores share, parts that load less are faster."""

from __future__ import annotations

import dataclasses

import pytest

from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.isa import Opcode
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import plan_graph
from lutterfly.host.graph import Window

POINT = Window((1, 1))


def loaded_bytes(config: Config) -> int:
    """Of an inference of a layer whose weights stream, and whose input does not fit: each part loads one of both."""
    maker = GraphMaker((14, 14, 512))
    plan = plan_graph(maker.finish(maker.convolution("x", 512, POINT)), config)
    memory = PRESETS["ecp5-85k"].memory
    assert plan.cuts
    assert plan.graph.tensors["x"].size_bytes > memory.feature_bytes
    return sum(
        command.fields["rows"] * command.fields["folds"] * command.fields["row_pieces"] * command.fields["piece_bytes"]
        for command in plan.commands
        if command.opcode is Opcode.LOAD
    )


@pytest.mark.regress
@pytest.mark.parametrize(
    ("cluster", "is_less"), [(ClusterConfig(4), True), (ClusterConfig(4, shared_port=False), False)]
)
def test_less_is_loaded_where_cores_share_the_bus(cluster: ClusterConfig, *, is_less: bool) -> None:
    memory = dataclasses.replace(PRESETS["ecp5-85k"].memory, weight_bytes=1 << 17)
    alone = dataclasses.replace(PRESETS["ecp5-85k"], memory=memory)
    found = loaded_bytes(dataclasses.replace(alone, cluster=cluster))
    assert (found < loaded_bytes(alone)) == is_less
