"""The command `export`, and the core file of `verilog`."""

# ruff: noqa: PLC0415  (what takes long to import is imported by the command that needs it)
from __future__ import annotations

from pathlib import Path

from ....golden.config import Config
from ...files.files import check_folder, check_writable, write_folder, write_whole
from ...files.terminal import Progress
from ..answer import Answer
from ..models import verilog as generate
from ..target import Target


def export(model: Path, output: Path, name: str, arena_bytes: int | None, target: Target, progress: Progress) -> Answer:
    """Write a program as C, with the driver and an example.

    Raises
    ------
    ValueError
        If the arena is too small, C has the name already, or the folder cannot be written. All but the first is checked
        before long work begins.
    """
    from ...integration import export

    export.check_name(name)
    check_folder(output, export.file_names(name))
    progress("compiling")
    loaded = target.load(model)
    program = loaded.program
    room = arena_bytes or target.config.arena.on_chip_bytes or program.arena_bytes
    notes = export.host_lines(*loaded.parts)
    source = export.ModelSource(name, program, room, notes)
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


def verilog(output: Path, config: Config, progress: Progress, *, core: bool, vivado: bool, trace: bool) -> Answer:
    """Generate Verilog and, where requested, a core file for FuseSoC and a script for Vivado.

    Raises
    ------
    ValueError
        If one of them cannot be written.
    """
    from ...experimental import cores

    kinds = {"core": (core, "the core file for FuseSoC", cores.core_text)}
    kinds["tcl"] = (vivado, "the script for Vivado", cores.script)
    beside = {}
    for suffix, (wanted, _, make) in kinds.items():
        if wanted:
            path = output.with_suffix(f".{suffix}")
            if path == output:
                raise ValueError(
                    f"{output}: must not end with .{suffix}, which a file beside it does; name another place"
                )
            check_writable(path)
            beside[suffix] = (path, make(output.name, config))
    answered = generate(output, config, progress, trace=trace)
    for path, text in beside.values():
        write_whole(path, text.encode())
    lines = [answered.text, *(f"{path}: {kinds[suffix][1]}" for suffix, (path, _) in beside.items())]
    return Answer("\n".join(lines), {**answered.values, **{suffix: str(path) for suffix, (path, _) in beside.items()}})
