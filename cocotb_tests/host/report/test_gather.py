"""What a report shows is what the program, its layers and the counters say."""

from __future__ import annotations

import pytest

from cocotb_tests.support.oracles.reported import NETWORKS, report_of
from lutterfly.golden.memories import LocalMemory
from lutterfly.host.report.gather import LABEL_CHARACTERS, _label


@pytest.mark.parametrize("network", NETWORKS)
def test_layers_are_the_programs(network: str) -> None:
    _, facts = report_of(network)
    assert tuple(layer.planned for layer in facts.layers) == facts.program.layers
    assert len({layer.label for layer in facts.layers}) == len(facts.layers)
    assert facts.macs == sum(layer.macs for layer in facts.program.layers)
    assert facts.utilisation == pytest.approx(
        facts.macs / facts.config.multipliers / facts.observation.counters["cycles"]
    )
    assert all(layer.macs_per_cycle <= facts.config.multipliers for layer in facts.layers)


@pytest.mark.parametrize("network", NETWORKS)
def test_memories_are_no_fuller_than_they_are_large(network: str) -> None:
    plan, facts = report_of(network)
    for use, (memory, image) in zip(facts.constants, plan.images.items(), strict=True):
        streams = any(arrival.memory is memory for arrival in plan.arrivals)
        assert use.capacity == facts.config.size_bytes(memory)
        assert use.used == (use.capacity if streams else len(image)), use.name
        assert ("loaded in every inference" in use.parts) == streams
    assert facts.external.used == facts.program.arena_bytes
    assert facts.external.parts.get("alignment", 0) >= 0
    for kind, ports in (("inputs", facts.program.inputs), ("outputs", facts.program.outputs)):
        assert facts.external.parts[kind] == sum(port.size_bytes for port in ports)
    assert ("spilled tensors" in facts.external.parts) == bool(facts.program.cores[0].spilled) == (network == "large")


@pytest.mark.parametrize("network", NETWORKS)
def test_tables_are_those_of_the_layers(network: str) -> None:
    plan, facts = report_of(network)
    with_table = [index for index, layer in enumerate(plan.graph.layers) if getattr(layer, "table", None) is not None]
    assert facts.functions == len(with_table) >= 1
    assert sorted(index for table in facts.tables for index in table.layers) == with_table
    for table in facts.tables:
        for index in table.layers:
            assert table.codes.tolist() == plan.graph.layers[index].table.tolist()
    resident = plan.images[LocalMemory.TABLE]
    assert b"".join(table.codes.tobytes() for table in facts.tables if not table.is_streamed) == resident


def test_labels_are_short_and_keep_both_ends_of_a_name() -> None:
    assert _label(0, "conv") == "1 conv"
    label = _label(11, "model/stage_1/block_2/depthwise/convolution")
    assert label.startswith("12 model/")
    assert label.endswith("convolution")
    assert len(label) <= len("12 ") + LABEL_CHARACTERS
