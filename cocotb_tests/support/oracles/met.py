"""Functional coverage: what the programs of a set of networks make the hardware meet.

Derived from the commands of a program and from what the compiler says of its layers; counted by cocotb-coverage, whose
database writes the report.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cocotb_coverage.coverage import CoverCross, CoverPoint, coverage_db, coverage_section

from lutterfly.golden.config import Config
from lutterfly.golden.engines import FPC, decode, find_engine, find_memory, specification_of
from lutterfly.golden.isa import COMMAND_BYTES, CommandFields, Compute, Load
from lutterfly.golden.memories import memories
from lutterfly.golden.presets import DEFAULT_PRESET, PRESETS
from lutterfly.golden.program.program import Program
from lutterfly.golden.timing.issue import result_groups
from lutterfly.golden.timing.latencies import RESULT_WINDOWS
from lutterfly.golden.units import Queue

#: Of the accelerators that the networks run on; fast pointwise convolutions and binary layers are drawn by another
#: source.
ENGINES = [
    engine.name
    for engine in PRESETS[DEFAULT_PRESET].engines
    if engine is not FPC and not specification_of(engine).is_binary
]
#: All but the one that none of those engines reads.
MEMORIES = [memory.name for memory in memories(PRESETS[DEFAULT_PRESET]) if memory is not FPC.memory]
BOUNDS = ["bus", "issue", "results"]
WAITS = ["none", "tokens", "after", "both"]
BALANCES = ["fewer", "equal", "more"]
BOUNDARIES = ["first", "same engine", "other engine"]
RUNS = ["1", "2", "3 to 7", "8 to 15", "16 or more"]
SIZES = ["1", f"2 to {RESULT_WINDOWS}", "more"]
TRANSFERS = ["LOAD", "STORE", "FILL"]

#: What no compiled program has. Depthwise layers with tiles inside are illegal; what reads no weights and has one
#: parameter word for all gains nothing from tiles inside; convolutions have a parameter for each channel.
_NO_TILES_INSIDE = [(engine, True, None) for engine in ("MAXIMUM", "DEPTHWISE", "ADD", "MULTIPLY")]
_NO_PARAMETERS = [("MAC", True), ("MAXIMUM", False), ("ADD", False), ("MULTIPLY", False)]


# Without slots: coverage looks at every member, and Python before 3.11.3 leaves a broken one beside them.
@dataclass(frozen=True)
class Computed:
    """What is remarkable about a COMPUTE command.

    Attributes
    ----------
    bound : str
        What decides how long it takes.
    balance : str
        Groups of results of a window in proportion to its steps.
    run : int
        Such commands in a row up to this one, with one engine, more groups than steps and no wait between.
    """

    engine: str
    bound: str
    waits: str
    balance: str
    boundary: str
    run: int
    windows: int
    tile_inner: bool
    parameter_shared: bool
    partial: bool
    table: bool
    groups: int


@dataclass(frozen=True)
class Moved:
    """A command of the DMA queue, and the transfer before it."""

    opcode: str
    before: str
    waits: str
    memory: str
    folded: bool


def _fields(commands: bytes) -> Iterator[CommandFields]:
    for start in range(0, len(commands), COMMAND_BYTES):
        yield decode(commands[start : start + COMMAND_BYTES])


def _waits(fields: CommandFields) -> str:
    return WAITS[int(fields["wait"] > 0) + 2 * fields["after"]]


def computed(program: Program, config: Config) -> Iterator[Computed]:
    """The COMPUTE commands of an inference, in order."""
    bounds = {index: layer.bound for layer in program.layers for index in layer.commands}
    before, run = None, 0
    for index, fields in enumerate(_fields(program.cores[0].body.compute.commands)):
        if not isinstance(fields, Compute):
            continue
        engine, waits = find_engine(fields["engine"]).name, _waits(fields)
        groups = result_groups(config, fields["lanes"])
        steps = fields["steps"] - (fields["skip"] if fields["inner"] > 1 else 0)
        balance = BALANCES[(groups > steps) - (groups < steps) + 1]
        follows = before is not None and before.waits_not(engine, waits)
        run = 0 if balance != "more" else run + 1 if follows else 1
        bound = "bus" if bounds[index] == "bus" else "results" if balance == "more" else "issue"
        yield Computed(
            engine=engine,
            bound=bound,
            waits=waits,
            balance=balance,
            boundary="first" if before is None else f"{'same' if before.engine == engine else 'other'} engine",
            run=run,
            windows=fields["outer"] * fields["middle"] * fields["inner"],
            tile_inner=bool(fields["tile_inner"]),
            parameter_shared=bool(fields["parameter_shared"]),
            partial=fields["last_lanes"] < fields["lanes"],
            table=bool(fields["table_enable"]),
            groups=groups,
        )
        before = _Before(engine)


@dataclass(frozen=True, slots=True)
class _Before:
    engine: str

    def waits_not(self, engine: str, waits: str) -> bool:
        return self.engine == engine and waits == "none"


def moved(program: Program) -> Iterator[Moved]:
    """The commands of an inference's DMA queue, in order."""
    before = "none"
    for fields in _fields(program.cores[0].body.dma.commands):
        name = fields.opcode.name
        if name not in TRANSFERS:
            continue
        memory = find_memory(fields.memory).name if isinstance(fields, Load) else "FEATURE"
        yield Moved(name, before, _waits(fields), memory, fields.get("folds", 1) > 1)
        before = name


def _size(count: int) -> str:
    return SIZES[(count > 1) + (count > RESULT_WINDOWS)]


def _run(command: Computed) -> str | None:
    if command.run == 0:
        return None
    return RUNS[sum(command.run > most for most in (1, 2, 7, 15))]


class Coverage:
    """Counts what programs meet.

    ``holes`` names what was not met.
    """

    _numbers = itertools.count()

    def __init__(self) -> None:
        # The library has one database for a process: names tell coverages apart.
        self.name = f"met{next(self._numbers)}"
        self._compute, self._move, self._program = self._samplers()

    def sample(self, program: Program, config: Config) -> None:
        """Count the commands of one inference."""
        for command in computed(program, config):
            self._compute(command)
        for transfer in moved(program):
            self._move(transfer)
        for queue in Queue:
            count = len(program.cores[0].body[queue])
            self._program(queue, "streamed" if count > config.resident_commands else "resident")

    def items(self) -> dict[str, dict]:
        """Hits of each bin of each point and cross."""
        prefix = f"{self.name}."
        return {
            name.removeprefix(prefix): dict(item.detailed_coverage)
            for name, item in coverage_db.items()
            if name.startswith(prefix) and isinstance(item, CoverPoint | CoverCross)
        }

    def holes(self) -> list[str]:
        """What was not met: ``point: bin``."""
        return [
            f"{name}: {_text(value)}" for name, bins in self.items().items() for value, hits in bins.items() if not hits
        ]

    def report(self, path: Path) -> None:
        """Write the library's report: YAML, or XML where the file's name says so."""
        export = coverage_db.export_to_xml if path.suffix == ".xml" else coverage_db.export_to_yaml
        export(filename=str(path))

    def _samplers(self) -> tuple:
        def point(name, bins, xf):
            return CoverPoint(f"{self.name}.{name}", xf=xf, bins=bins)

        def cross(name, *items, ignored=()):
            return CoverCross(
                f"{self.name}.{name}", items=[f"{self.name}.{item}" for item in items], ign_bins=list(ignored)
            )

        @coverage_section(
            point("engine", ENGINES, lambda c: c.engine),
            point("bound", BOUNDS, lambda c: c.bound),
            point("waits", WAITS, lambda c: c.waits),
            point("balance", BALANCES, lambda c: c.balance),
            point("boundary", BOUNDARIES, lambda c: c.boundary),
            point("run", RUNS, _run),
            point("windows", SIZES, lambda c: _size(c.windows)),
            point("tile_inner", [False, True], lambda c: c.tile_inner),
            point("parameter_shared", [False, True], lambda c: c.parameter_shared),
            point("partial", [False, True], lambda c: c.partial),
            point("table", [False, True], lambda c: c.table),
            cross("engine_bound_waits", "engine", "bound", "waits"),
            cross("engine_balance_boundary", "engine", "balance", "boundary"),
            cross("engine_run", "engine", "run"),
            cross("engine_balance_windows", "engine", "balance", "windows"),
            cross("engine_tiles", "engine", "tile_inner", "partial", ignored=_NO_TILES_INSIDE),
            cross("engine_parameters", "engine", "parameter_shared", ignored=_NO_PARAMETERS),
            cross("engine_table", "engine", "table"),
        )
        def compute(command: Computed) -> None:
            pass

        @coverage_section(
            point("transfer", TRANSFERS, lambda t: t.opcode),
            point("before", TRANSFERS, lambda t: t.before),
            # Of `after` the compiler has no need there: LOAD, STORE and FILL wait for one another by themselves.
            point("transfer_waits", WAITS[:2], lambda t: t.waits),
            point("memory", MEMORIES, lambda t: t.memory),
            point("folded", [False, True], lambda t: t.folded),
            cross("transfer_before_waits", "transfer", "before", "transfer_waits"),
        )
        def move(transfer: Moved) -> None:
            pass

        @coverage_section(
            point("queue", [queue.value for queue in Queue], lambda queue, _: queue.value),
            point("place", ["resident", "streamed"], lambda _, place: place),
            cross("queue_place", "queue", "place"),
        )
        def program(queue: str, place: str) -> None:
            pass

        return compute, move, program


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
