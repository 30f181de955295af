"""What `lutterfly check --supported` says: as text, and as values for JSON."""

from __future__ import annotations

from typing import Any

from ...golden.config import Config
from ..files.phrases import table_text
from ..frontend.supported import domain_of, supported
from ..quantize.rewriting import REWRITINGS
from .listing import HEAD, lacks, named, needs, operator_rows, ways


def listed(config: Config) -> tuple[str, dict[str, Any]]:
    """Operators, how they run, what they need, and what the configuration has of it."""
    everything = supported()
    text = [table_text([HEAD, *operator_rows(everything)])]
    for one in everything:
        text += ["", f"{one.title}: {', '.join(named(one, everything))}", f"  runs as {one.runs.value}"]
        lacking = ", which this configuration lacks" if lacks(one.layers, config) else ""
        text += [f"  needs {needs(one.layers)}{lacking}"] if one.layers else []
        text += [f"  refused if {clause}" for clause in one.refused]
    text += ["", "rewritten by `lutterfly quantize`"]
    for each in REWRITINGS:
        text += [f"  {', '.join(each.operators)}: {each.title}", f"    {each.change}"]
    values = {
        "operators": [
            {
                "title": one.title,
                "operators": one.operators,
                "domains": [domain_of(operator) for operator in one.operators],
                "runs": one.runs.value,
                "engines": [[engine.name for engine in engines] for engines in ways(one.layers)],
                "runs_on_configuration": not lacks(one.layers, config),
                "refused": one.refused,
            }
            for one in everything
        ],
        "rewritings": [
            {"operators": each.operators, "title": each.title, "change": each.change} for each in REWRITINGS
        ],
    }
    return "\n".join(text), values
