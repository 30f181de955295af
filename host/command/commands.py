"""What the commands do: from the command line's words to an answer.

Whatever takes long to import is imported by the command that needs it.
"""

# ruff: noqa: PLC0415
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...golden.config import Config
from ..files.configuration import find_config
from ..files.phrases import macs_of, prediction_text, table_text
from ..files.progress import Progress
from ..files.writing import check_writable, write_whole
from ..simulation import cache
from ..simulation.build import verilog as generate_verilog
from ..simulation.toolchain import ToolError
from ..simulation.top import AXI, IP
from .answer import Answer
from .target import Target


def check(model: Path | None, target: Target, progress: Progress, *, supported: bool = False) -> Answer:
    """Show where each layer runs, how fast, and what memory it needs; or the operators that are supported.

    Raises
    ------
    ValueError
        If both are wanted, or none.
    """
    if (model is None) is not supported:
        raise ValueError("one of MODEL and --supported must be given, and not both")
    if model is not None:
        return _checked(model, target, progress)
    from ..supported.text import listed

    return Answer(*listed(target.config))


def _checked(model: Path, target: Target, progress: Progress) -> Answer:
    from ..model.mac_share import mac_share
    from . import check as layers

    progress("compiling")
    loaded, outcome = target.load_outcome(model)
    program, speed = loaded.program, target.speed
    table, values = layers.layer_table(outcome)
    memories, share = layers.memories(outcome), mac_share(program, loaded.parts)
    text = [
        table_text(table),
        "",
        *(f"{name}: {used:,} of {size:,} bytes{more}" for name, used, size, more in memories if used or more),
        *layers.core_lines(outcome),
        *layers.copy_lines(outcome),
        prediction_text(program, target.config.multipliers),
        *([speed.text(program.predicted_cycles, program.batch)] if speed else []),
        *share.lines(),
        *(f"note: {note}" for note in outcome.outline.notes),
    ]
    return Answer(
        "\n".join(text),
        {
            "layers": values,
            "memories": {name: {"used_bytes": used, "bytes": size} for name, used, size, _ in memories},
            "transfer_functions": outcome.outline.transfer_functions,
            "transfer_tables": outcome.transfer_tables,
            "cores": layers.core_values(outcome),
            "predicted_cycles": program.predicted_cycles,
            **(speed.values(program.predicted_cycles, program.batch) if speed else {}),
            "macs": macs_of(program),
            **share.values(),
            "notes": outcome.outline.notes,
        },
    )


def compile_(model: Path, output: Path, target: Target, progress: Progress) -> Answer:
    """Compile to a program file."""
    from ..model.mac_share import mac_share

    check_writable(output)
    progress("compiling")
    loaded = target.load(model)
    program = loaded.program
    data, share = program.to_bytes(), mac_share(program, loaded.parts)
    write_whole(output, data)
    values = {
        "predicted_cycles": program.predicted_cycles,
        "macs": macs_of(program),
        **share.values(),
        "batch": program.batch,
        "file_bytes": len(data),
        "arena_bytes": program.arena_bytes,
    }
    prediction = prediction_text(program, target.config.multipliers)
    return Answer("\n".join([f"{output}: {len(data):,} bytes, {prediction}", *share.lines()]), values)


def verilog(output: Path, config: Config, progress: Progress, *, trace: bool = False) -> Answer:
    """Generate Verilog, with the pins of the trace if they are asked for."""
    check_writable(output)
    text = generate_verilog(config, top=AXI if trace else IP, progress=progress)
    write_whole(output, text.encode())
    return Answer(f"{output}: {len(text):,} bytes of Verilog", {"file_bytes": len(text)})


def synth(
    device: str,
    speed: int,
    mhz: float | None,
    seeds: Sequence[int],
    config: str | None,
    cores: int | None,
    progress: Progress,
) -> Answer:
    """Measure area and clock, of the device's own configuration if ``config`` is None, for its clock if ``mhz`` is.

    Raises
    ------
    ValueError
        If there is no such device, speed grade, clock or configuration: before anything is written.
    ToolError
        If a tool is missing or fails.
    """
    from ...synth import flow, tools
    from ...synth.report import ReportError

    target = flow.find_target(device, speed, mhz)
    found = find_config(config or target.preset, cores)
    folder = cache.default_root() / "synth" / f"{found.hash:08x}-{target.name}-{target.speed}"
    try:
        with cache.explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
            progress("waiting for another synthesis of this configuration")
            with cache.locked(folder / "lock"):
                measured = flow.synthesise(
                    found,
                    folder=folder,
                    device=device,
                    speed=speed,
                    mhz=mhz,
                    seeds=seeds,
                    progress=progress,
                )
    except (tools.FlowError, ReportError) as error:
        raise ToolError(str(error)) from error
    return Answer(f"{measured.as_text()}\nlogs            {folder}", measured.as_dict(), not measured.misses())


def demo(form: str, config: str, progress: Progress) -> Answer:
    """Classify the digits."""
    from ...examples import digits
    from . import demo as digits_demo

    found = find_config(config)
    result = digits_demo.run(found, form=form, progress=progress)
    images, shown = digits.images(), 6
    text = [
        digits_demo.picture(images[:shown]),
        "   ".join(f"{f'predicted {result.predictions[i]}, is {result.labels[i]}':<16}" for i in range(shown)),
        "",
        f"{len(images)} held-out digits, {digits.model_path(form).name} on the simulated accelerator ({config})",
        f"accuracy          {result.accuracy:.2%}  (ONNX Runtime {result.reference_accuracy:.2%})",
        f"bytes compared    {result.bytes:,}, {result.mismatched_bytes:,} differ from ONNX Runtime's",
        f"cycles per image  {result.cycles:,}  (predicted {result.predicted_cycles:,})",
        f"utilisation       {result.utilisation:.1%} of {result.multipliers} multipliers, {result.macs:,} products",
    ]
    values = {
        "accuracy": result.accuracy,
        "reference_accuracy": result.reference_accuracy,
        "images": len(images),
        "bytes": result.bytes,
        "mismatched_bytes": result.mismatched_bytes,
        "cycles": result.cycles,
        "predicted_cycles": result.predicted_cycles,
        "macs": result.macs,
        "utilisation": round(result.utilisation, 4),
    }
    return Answer("\n".join(text), values, result.is_right)
