"""The commands for boards: from options to an answer.

A module that takes long to import is imported by the command that needs it.
"""

# ruff: noqa: PLC0415
from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from ....boards import BOARDS, Board, find_board
from ....golden.config import Config
from ....synth.tools import missing
from ... import boards
from ...files.configuration import find_config
from ...files.files import check_writable, read_file, write_whole
from ...files.terminal import Progress
from ...simulation import cache
from ...simulation.toolchain import ToolError
from .. import models
from ..answer import Answer
from ..target import Target


def check(model: Path, name: str, mhz: float | None, progress: Progress) -> Answer:
    """Show the layers of a model on a board with the first of its configurations that runs it, and the boards on which
    the model runs.

    Raises
    ------
    ValueError
        If there is no such board, or if the model does not run on it. Where another configuration may run the model,
        the message names the boards that do.
    """
    from ...compiler import OTHER_CONFIG, CompileError

    board = find_board(name)
    known: dict[str, bool] = {}
    refusal = None
    for variant in board.variants:
        target = Target.of(variant.preset, None, None, mhz=mhz or variant.core_mhz)
        try:
            answered = models.check(model, target, progress)
        except CompileError as error:
            known[variant.preset] = False
            refusal = refusal or error
            continue
        running = _running(model, known | {variant.preset: True}, progress)
        return dataclasses.replace(
            answered,
            text=f"{answered.text}\nwith {variant.preset}\nruns on {', '.join(running)}",
            values=answered.values | {"board": board.name, "preset": variant.preset, "boards": running},
        )
    others = ", ".join(_running(model, known, progress)) or "no board"
    cause = str(refusal).removesuffix(OTHER_CONFIG)
    raise ValueError(f"{board.name}: {cause}; the model runs on {others}") from refusal


def _running(model: Path, known: dict[str, bool], progress: Progress) -> list[str]:
    """Return the names of the boards that run a model; ``known`` says which presets do, as far as that is known."""
    return [
        board.name
        for board in BOARDS.values()
        if any(_runs(model, variant, known, progress) for variant in board.variants)
    ]


def _runs(model: Path, board: Board, known: dict[str, bool], progress: Progress) -> bool:
    """Return whether a board's configuration runs a model; the answer joins ``known``."""
    if board.preset not in known:
        progress(f"compiling for {board.name}")
        try:
            Target.of(board.preset, None, None).load(model)
        except ValueError:
            # One board runs it or refuses it for its configuration: so does this one.
            known[board.preset] = False
        else:
            known[board.preset] = True
    return known[board.preset]


def bitstream(name: str, output: Path, seeds: Sequence[int], config: str | None, progress: Progress) -> Answer:
    """Build a bitstream, of the board's own configuration if ``config`` is None.

    Raises
    ------
    ValueError
        If there is no such board or configuration, the board has no memory for the arena, the design does not fit, or
        the output cannot be written. All but the fit is checked before long work begins.
    ToolError
        If a tool is missing or fails.
    """
    board, found = board_and_config(name, config)
    check_writable(output)
    from ....hdl.top_uart import TopUart
    from ....synth import bitstream as building
    from ....synth import tools
    from ....synth.families import DEVICES, family_of
    from ....synth.report import ReportError

    family = family_of(DEVICES[board.part.device])
    if output.suffix != family.suffix:
        raise ValueError(
            f"{output}: its name must end with {family.suffix}, by which openFPGALoader knows a bitstream of "
            f"{family.title}"
        )
    folder = cache.default_root() / "bitstream" / f"{found.hash:08x}-{board.name}"
    try:
        tools.check_tools(family.tools)
        with cache.explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
            progress("waiting for another build of this bitstream")
            with cache.locked(folder / "lock"):
                core = TopUart(found, clock_hz=board.core_hz, sdram=building.chip_of(board, found))
                built = building.build(core, board, folder=folder, seeds=seeds, progress=progress)
    except (tools.FlowError, ReportError, ImportError) as error:
        raise ToolError(str(error)) from error
    if built.is_met:
        write_whole(output, built.data)
    return _answer(output, found, board, built, folder)


def board_and_config(name: str, config: str | None) -> tuple[Board, Config]:
    """Return the board of a name, and the configuration of a name or file, by default the board's own with the arena on
    the chip; the board is one with SDRAM if the arena is not there.

    Raises
    ------
    ValueError
        If there is no such board or configuration, or the board has no memory for the arena.
    ToolError
        If the controller of the board's SDRAM is missing.
    """
    board = find_board(name)
    found = find_config(config or board.preset)
    if found.arena.on_chip_bytes:
        return board, found
    variant = board.with_sdram()
    lacking = [module for module in ("litedram", "litex", "migen") if importlib.util.find_spec(module) is None]
    if lacking:
        raise ToolError(missing("an arena in the board's SDRAM", lacking, "sdram"))
    return variant, found


def _answer(output: Path, config: Config, board: Board, built, folder: Path) -> Answer:
    """Return the answer of a build: area, clock, critical path and written files."""
    best, device = built.best, built.device
    clocks = ", ".join(f"{run.fmax_mhz:.1f}" for run in built.placements)
    path = best.critical
    first = (
        f"{output}: {len(built.data):,} bytes, {board.name} at {board.core_mhz:g} MHz"
        if built.is_met
        else f"{board.name} must reach {device.fmax_mhz:.4g} MHz, and does not with {len(built.placements)} seeds; "
        "nothing is written; try more --seeds, or a smaller --config"
    )
    used = (
        ("look-up tables", best.lut, device.lut),
        ("flip-flops", best.ff, device.ff),
        ("multipliers", best.dsp, device.dsp),
        ("block RAMs", best.bram, device.bram),
    )
    text = [
        first,
        *(f"{what:<16}{count:>7,} of {limit:,}" for what, count, limit in used),
        f"{'clock':<16}{best.fmax_mhz:>7.1f} MHz with seed {best.seed}, of {clocks}",
        f"{'limited by':<16}{path.start} -> {path.end}",
        f"{'':<16}{path.logic_ns:.1f} ns in {path.levels} cells, {path.routing_ns:.1f} ns of wires",
        f"{'logs':<16}{folder}",
    ]
    values = {
        "board": board.name,
        "part": board.part.name,
        "config_hash": config.hash,
        "core_mhz": board.core_mhz,
        "fmax_mhz": round(best.fmax_mhz, 2),
        "seed": best.seed,
        "fmax_by_seed_mhz": {str(run.seed): round(run.fmax_mhz, 2) for run in built.placements},
        **{name: getattr(best, name) for name in ("lut", "ff", "dsp", "bram")},
        "critical_path": dataclasses.asdict(path),
        "file_bytes": len(built.data),
        "is_met": built.is_met,
    }
    return Answer("\n".join(text), values, built.is_met)


def flash(name: str, file: Path, progress: Progress, *, persist: bool) -> Answer:
    """Load a bitstream into a board.

    Raises
    ------
    ValueError
        If there is no such board, or the file is not a bitstream for its FPGA; the cable has not been used then.
    LoaderError
        If openFPGALoader is missing, fails or does not end.
    """
    board = find_board(name)
    data = read_file(file)
    boards.check_board(str(file), data, board)
    program = boards.find_loader()
    place = "flash" if persist else "FPGA"
    progress(f"loading the {place} of {board.name}")
    boards.load(program, board, file, persist=persist)
    values = {"board": board.name, "file_bytes": len(data), "persist": persist}
    return Answer(f"{file}: loaded into the {place} of {board.name}, {len(data):,} bytes", values)
