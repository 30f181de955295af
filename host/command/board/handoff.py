"""What `export` does, and the core file of `verilog`."""

# ruff: noqa: PLC0415  (what takes long to import is imported by the command that needs it)
from __future__ import annotations

from pathlib import Path

from ....golden.config import Config
from ...files.folders import check_folder, write_folder
from ...files.progress import Progress
from ...files.writing import check_writable, write_whole
from ..answer import Answer
from ..commands import verilog as generate
from ..target import Target


def export(model: Path, output: Path, name: str, arena_bytes: int | None, target: Target, progress: Progress) -> Answer:
    """Write a program as C, with the driver and an example.

    Raises
    ------
    ValueError
        If the arena is too small, C has the name already, or the folder cannot be written: all but the first before
        anything long begins.
    """
    from ...handoff import c_text, export
    from ...handoff.host_parts import host_lines
    from ...handoff.model_source import ModelSource

    c_text.check_name(name)
    check_folder(output, export.file_names(name))
    progress("compiling")
    loaded = target.load(model)
    program = loaded.program
    room = arena_bytes or target.config.arena.on_chip_bytes or program.arena_bytes
    notes = host_lines(*loaded.parts)
    source = ModelSource(name, program, room, notes)
    files = export.files(source)
    write_folder(output, files)
    size, count = sum(map(len, files.values())), len(source.stages)
    text = [
        f"{output}: {len(files)} files, {size:,} bytes",
        f"loaded in {count} {'stage' if count == 1 else 'stages'} through {source.needed_bytes:,} bytes of the arena",
        *notes,
    ]
    values = {
        "files": sorted(files),
        "file_bytes": size,
        "stages": count,
        "arena_bytes": source.needed_bytes,
        "config_hash": program.config_hash,
        "predicted_cycles": program.predicted_cycles,
        "notes": notes,
    }
    return Answer("\n".join(text), values)


def verilog(output: Path, config: Config, progress: Progress, *, core: bool, trace: bool) -> Answer:
    """Generate Verilog, and a core file beside it.

    Raises
    ------
    ValueError
        If one of them cannot be written.
    """
    if not core:
        return generate(output, config, progress, trace=trace)
    from ...handoff.fusesoc import core_text

    beside = output.with_suffix(".core")
    if beside == output:
        raise ValueError(f"{output}: must not end with .core, which the core file beside it does; name another place")
    check_writable(beside)
    answered = generate(output, config, progress, trace=trace)
    write_whole(beside, core_text(output.name, config).encode())
    return Answer(f"{answered.text}\n{beside}: the core file for FuseSoC", {**answered.values, "core": str(beside)})
