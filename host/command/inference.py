"""What `run` does: inference on files, and its report."""

# ruff: noqa: PLC0415  (what takes long to import is imported by the command that needs it)
from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..backend import find_backend
from ..files.phrases import elements_text, inference_text, macs_of, prediction_text, shape_text
from ..files.progress import Progress
from ..files.writing import check_writable, write_whole
from ..model.arrays import assign, load_inputs, sample_count
from ..program import Speed
from ..session.session import InferenceSession
from .answer import Answer
from .target import Target


def run(
    model: Path,
    inputs: Sequence[str],
    outputs: Sequence[str],
    report: Path | None,
    backend: str,
    target: Target,
    progress: Progress,
) -> Answer:
    """Run inference on files."""
    from .. import report as reports

    outcome = None
    if report:
        find_backend(backend).need_accelerator("report")
        if target.transport is not None:
            raise ValueError("report must be of a simulated accelerator, which shows every cycle; leave out --device")
        reports.check_ending(report)
        reports.check_available()
        given, outcome = target.load_outcome(model)
    else:
        given = target.load(model)
    session = InferenceSession(given, target.config, target.transport, progress=progress, backend=backend)
    sources = assign("input", inputs, session.get_inputs())
    targets = assign("output", outputs, session.get_outputs())
    feeds = load_inputs(sources, session.get_inputs())
    names = [info.name for info in session.get_outputs()]
    paths = [Path(path) for path in targets.values()]
    if report:
        reports.check_target(report, (model, *map(Path, sources.values()), *paths))
    for path in paths:
        check_writable(path)
    results = dict(zip(names, session.run(None, feeds), strict=True))
    for name, path in targets.items():
        stream = io.BytesIO()
        np.save(stream, results[name])
        write_whole(Path(path), stream.getvalue())
    answered = _answer(session, results, targets, feeds, target.speed)
    if not report or not outcome:
        return answered
    progress("drawing the report")
    start = (len(session.counters) - 1) * session.batch
    last = {name: array[start:] for name, array in feeds.items()}
    write_whole(report, reports.make(session, outcome, last, model.name, target.speed))
    return Answer(f"{answered.text}\nreport: {report}", answered.values | {"report": str(report)})


def _answer(
    session: InferenceSession,
    results: Mapping[str, np.ndarray],
    targets: Mapping[str, str],
    feeds: Mapping[str, np.ndarray],
    speed: Speed | None,
) -> Answer:
    """What inferences gave, and what is known of their cycles."""
    from ..model.mac_share import mac_share

    program, share = session.program, mac_share(session.program, session.loaded.parts)
    lines, cycles, values = _measured(session) if session.backend.has_accelerator else _predicted(session)
    if speed:
        lines.insert(1, speed.text(cycles, program.batch))
        values |= speed.values(cycles, program.batch)
    values = {
        "backend": session.backend.name,
        "predicted_cycles": program.predicted_cycles,
        "macs": macs_of(program),
        **share.values(),
        "samples": sample_count(feeds),
        "batch": program.batch,
        "outputs": {name: list(array.shape) for name, array in results.items()},
        **values,
    }
    text = [
        f"{name}: {array.dtype} {shape_text(array.shape)}"
        + (f" -> {targets[name]}" if name in targets else elements_text(array))
        for name, array in results.items()
    ]
    return Answer("\n".join([*text, lines[0], *share.lines(), *lines[1:]]), values)


def _measured(session: InferenceSession) -> tuple[list[str], int, dict[str, Any]]:
    """The cycles of the last inference: lines for people, how many, and values for scripts."""
    # Of the last inference: a report makes one more, which leaves other counters.
    program, counters, multipliers = session.program, session.counters[-1], session.config.multipliers
    cycles = counters["cycles"]
    utilisation = program.utilisation(cycles, multipliers)
    measured = f"{cycles:,} cycles for {inference_text(program)} (predicted {program.predicted_cycles:,})"
    text = [f"{measured}, {utilisation:.1%} of {multipliers} multipliers busy"]
    if len(session.counters) == 1:
        text.append("the first inference fetches the program as well; later ones find it in the accelerator")
    return text, cycles, {"cycles": cycles, "utilisation": round(utilisation, 4), "counters": counters}


def _predicted(session: InferenceSession) -> tuple[list[str], int, dict[str, Any]]:
    """Likewise what is predicted, where there is no accelerator."""
    prediction = prediction_text(session.program, session.config.multipliers)
    return [f"computed by the {session.backend.title}: {prediction}"], session.program.predicted_cycles, {}
