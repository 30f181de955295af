"""What `lutterfly table` shows of a table."""

from __future__ import annotations

import numpy as np
import pytest

from lutterfly.golden.transfer.schemes import parse
from lutterfly.host.transfer.table import shown_codes, summary, tabulate_chain


@pytest.mark.parametrize("source", ["q3.4", "q3.4:symmetric", "q3.12"])
def test_codes_from_the_first_to_the_last(source: str) -> None:
    facts = tabulate_chain("Tanh", np.tanh, parse(source), parse("q0.7"))
    head, _, *rows, note = shown_codes(facts).splitlines()
    assert head.split() == ["code", "input", "operator", "result's", "code", "stands", "for", "error", "in", "steps"]
    assert note == f"{len(rows)} of {facts.table.size:,} codes"
    cells = [row.split() for row in rows]
    assert (int(cells[0][0]), int(cells[-1][0])) == (facts.source.least, facts.source.greatest)
    for code, value, result, target, stands_for, error in cells:
        place = int(code) - facts.source.least
        assert int(target) == facts.table[place]
        assert float(value) == pytest.approx(facts.inputs[place], rel=1e-5)
        assert float(result) == pytest.approx(facts.results[place], rel=1e-5)
        assert float(stands_for) == pytest.approx(facts.table[place] / 128, rel=1e-5)
        assert float(error) == pytest.approx(facts.errors[place] * 128, rel=1e-5)


def test_summary() -> None:
    lines = summary(tabulate_chain("Tanh", np.tanh, parse("q3.12"), parse("q0.7"))).splitlines()
    assert lines[0] == "Tanh: q3.12 to q0.7"
    assert lines[1] == (
        "65,536 entries, half of them stored (32,768), in block RAM (16 of ecp5, 8 of xilinx); latency 4 cycles"
    )
    assert lines[2] == "greatest error 0.007812 (1 steps of 0.0078125) for the input 7.88379"
    assert lines[3].endswith(" results lie beyond the codes and saturate")
    text = summary(tabulate_chain("Exp", np.exp, parse("q3.4"), parse("uq4.4")))
    assert "256 entries, all of them stored, in fabric; latency 2 cycles" in text
