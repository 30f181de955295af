"""What `table` does: a transfer table, and its ROM as Verilog."""

# ruff: noqa: PLC0415  (what takes long to import is imported by the command that needs it)
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..files.progress import Progress
from ..files.writing import check_writable, write_whole
from ..model.model import read_model_file
from .answer import Answer


def table(
    operators: Sequence[str],
    model: Path | None,
    source: str,
    target: str,
    output: Path | None,
    plot: Path | None,
    limit: str | None,
    progress: Progress,
) -> Answer:
    """Compute a transfer table, and write its ROM as Verilog."""
    from ...golden.transfer.schemes import parse
    from .. import report as reports
    from ..transfer import answer, facts, pointwise, verilog
    from ..transfer import operators as chains
    from ..transfer.block_rams import BlockRams

    if bool(operators) == (model is not None):
        raise ValueError(
            "operator or model must be given, and not both: --operator Tanh, or --model FILE with a chain of pointwise "
            "operators; --operator Identity requantises"
        )
    schemes = parse(source), parse(target)
    there_are = BlockRams.parse(limit) if limit else None
    if plot:
        reports.check_ending(plot, "plot")
        reports.check_available("plot")
    for written, path in (("output", output), ("plot", plot)):
        if path:
            check_writable(path)
            if model and path.resolve() == model.resolve():
                raise ValueError(f"{written} must be another file than the model, not {path}")
    if output and plot and output.resolve() == plot.resolve():
        raise ValueError(f"plot must be another file than the Verilog, not {plot}")
    progress("computing the table")
    name = str(model) if model else ", ".join(operators)
    chain = chains.read_chain(read_model_file(model), name) if model else chains.chain_of(operators)
    found = facts.tabulate_chain(name, pointwise.Pointwise(chain, name), *schemes)
    if there_are:
        there_are.check(found.rom)
    text, values = [answer.summary(found)], found.values()
    if output:
        progress("generating Verilog")
        module = verilog.module_name(output)
        data = verilog.table_verilog(found, module).encode()
        write_whole(output, data)
        text.append(f"{output}: {len(data):,} bytes of Verilog, module {module}")
        values |= {"module": module, "file_bytes": len(data)}
    if plot:
        from ..transfer.plot import plot as draw

        progress("drawing the plot")
        write_whole(plot, draw(found).encode())
        text.append(f"plot: {plot}")
        values["plot"] = str(plot)
    if not output:
        text.append(answer.shown_codes(found))
    return Answer("\n".join(text), values)
