"""Build the simulator of one configuration: Amaranth to Verilog to C++ to a shared library, each kept in the cache.

A step whose result is in the cache imports and runs nothing; with a library there, Amaranth is not imported.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ...golden import pins
from ...golden.config import Config
from ...golden.pins import CLOCK, MODULE
from ..files.terminal import Progress, silent
from . import cache, toolchain
from .rewriting import WRAPPER_NAME, wrap
from .toolchain import ToolError

# The header `design.h`, which describes a configuration's model to ``harness.cpp``.


def design(root_header: str, config: Config) -> str:
    """Return the text of the header.

    Parameters
    ----------
    root_header : str
        Verilator's header of the model.
    config : Config

    Raises
    ------
    ToolError
        If the model does not have the memories of the configuration's cores.
    """
    cluster = config.cluster
    banks = {bank: _banks(bank, root_header, cluster.cores) for bank in ("even", "odd")}
    ports, traces = pins.masters(cluster), pins.traces(cluster)
    lines = [
        "#pragma once",
        f"#define LUTTERFLY_DATA_BYTES {config.axi.data_bytes}",
        f"#define LUTTERFLY_LANES {config.array.lanes}",
        f"#define LUTTERFLY_FEATURE_BYTES {config.memory.feature_bytes}",
        f"#define LUTTERFLY_PORTS {cluster.ports}",
        f"#define LUTTERFLY_CORES {cluster.cores}",
        f"#define LUTTERFLY_CLOCK top_.{pins.CLOCK}",
        f"#define LUTTERFLY_RESET_N top_.{pins.RESET}",
        f"#define LUTTERFLY_CONTROL(pin) top_.{pins.SLAVE}_##pin",
        *(f"#define LUTTERFLY_PIN_{name}(pin) top_.{name}_##pin" for name in (*ports, *traces)),
        f"#define LUTTERFLY_EACH_PORT(X) {' '.join(f'X({at}, LUTTERFLY_PIN_{name})' for at, name in enumerate(ports))}",
        "#define LUTTERFLY_EACH_CORE(X) "
        + " ".join(
            f"X({at}, LUTTERFLY_PIN_{name}, {even}, {odd})"
            for at, (name, even, odd) in enumerate(zip(traces, banks["even"], banks["odd"], strict=True))
        ),
    ]
    return "\n".join(lines) + "\n"


def _banks(bank: str, root_header: str, cores: int) -> list[str]:
    """Return the name of each core's banks of the feature memory in the model."""
    found = re.findall(rf"^ *VlUnpacked<.*> (\w*feature_memory__DOT__{bank}__DOT__storage);", root_header, re.MULTILINE)
    of_core = [[name for name in found if cores == 1 or f"core_{number}__DOT__" in name] for number in range(cores)]
    if any(len(names) != 1 for names in of_core):
        raise ToolError(f"the model must have one {bank} bank of the feature memory for each core, not {len(found)}")
    return [name for (name,) in of_core]


# Simulated designs: a top level, and the harness around it.


@dataclass(frozen=True, slots=True)
class Top:
    """A top level, and the harness around it.

    Attributes
    ----------
    module : str
        A module of ``lutterfly.hdl``, whose ``generate(config, asserted=..., **settings)`` returns the Verilog.
    settings : tuple of (str, object)
        Arguments of the generation beside the configuration, as JSON has them.
    is_rewritten : bool
        Whether the Verilog is rewritten to simulate faster. A netlist is not.
    harness : tuple of Path
        The source that is compiled with the model, and the headers that it includes beside ``design.h``.
    header : callable
        Takes Verilator's header of the model and the configuration; returns the text of ``design.h``.
    clock : str
        The name of the clock pin.
    """

    module: str
    harness: tuple[Path, ...]
    header: Callable[[str, Config], str]
    settings: tuple[tuple[str, object], ...] = ()
    clock: str = "clk"
    is_rewritten: bool = True


#: The accelerator as a block for other designs.
IP = Top("top_ip", tuple(Path(__file__).parent / name for name in ("harness.cpp", "axi_memory.h")), design, (), CLOCK)
#: The accelerator with the pins of its trace, for the harness of registers and external memory.
AXI = replace(IP, settings=(("trace", True),))

PACKAGE = Path(__file__).parents[2]
#: Digests of the sources at the time of the imports above: that version runs, even if the files are edited meanwhile.
_WRAPPING = tuple((Path(__file__).parent / name).read_bytes() for name in ("rewriting.py", "build.py"))
#: Generates Verilog in a process of its own, from the configuration in a file: this process may have imported sources
#: that were edited since, and would keep their Verilog under the key of the new ones.
_GENERATE = """\
import gc
import importlib
import json
import sys
from pathlib import Path
from lutterfly.golden.config import Config
# A quarter of the time goes into looking for garbage, of which there is little.
gc.disable()
folder, package = map(Path, sys.argv[1:3])
top = importlib.import_module(f"lutterfly.hdl.{sys.argv[3]}")
assert Path(top.__file__).parents[1] == package, top.__file__
config = Config.from_json((folder / "config.json").read_text())
(folder / "core.v").write_text(top.generate(config, **json.loads(sys.argv[4])))
"""

VERILATOR_FLAGS = (
    "--cc",
    "-O3",
    "--prefix",
    "Vcore",
    "--top-module",
    WRAPPER_NAME,
    "--x-assign",
    "fast",
    "--x-initial",
    "fast",
    "--no-assert",
    # Tables are not made of small logic, as their index takes longer than the logic.
    "-fno-table",
    # Files of this size keep two compilers busy and none of them for long; functions of it simulate fastest.
    "--output-split",
    "4000",
    "-CFLAGS",
    "-fPIC -std=c++17",
    *(f"-Wno-{name}" for name in toolchain.WAIVED_WARNINGS),
)
RUNTIME_FLAGS = ("-O2", "-fPIC", "-std=c++17")
RUNTIME_SOURCES = ("verilated.cpp", "verilated_threads.cpp")
#: Everything may read the banks of the feature memory; without the rule Verilator could rename or split them. The lanes
#: of the requantiser share their code. (The array's columns would be slower: inlined, their operands are vectors.)
RULES = """\
`verilator_config
public_flat_rd -module "*feature_memory*" -var "storage"
no_inline -module "*requantiser_0"
"""


def simulator_root() -> Path:
    """Return the default folder of simulators."""
    return cache.default_root() / "simulator"


def verilog(
    config: Config,
    *,
    top: Top = AXI,
    asserted: bool = False,
    root: Path | None = None,
    progress: Progress = silent,
) -> str:
    """Return the Verilog of a top level, from the cache if its sources have not changed; ``asserted``: with assertions.

    Raises
    ------
    ToolError
        If Amaranth or its Yosys fails, or if sources are edited meanwhile.
    """
    root = root or simulator_root()
    kind = "asserted" if asserted else "plain"
    key = _verilog_key(config, top)

    def build(folder: Path) -> None:
        progress("generating Verilog")
        (folder / "config.json").write_text(config.to_json())
        settings = json.dumps({"asserted": asserted, **dict(top.settings)})
        command = [sys.executable, "-c", _GENERATE, str(folder.resolve()), str(PACKAGE), top.module, settings]
        toolchain.run(command, cwd=folder, env=dict(os.environ), log=folder / "build.log")
        if _verilog_key(config, top) != key:
            raise ToolError("the sources in hdl and golden must stay the same while Verilog is generated; try again")

    return (_entry(root, f"verilog-{kind}-{key}", build) / "core.v").read_text()


def _verilog_key(config: Config, top: Top) -> str:
    sources = sorted(path for folder in ("golden", "hdl") for path in (PACKAGE / folder).rglob("*.py"))
    parts = [part for path in sources for part in (path.relative_to(PACKAGE).as_posix(), path.read_bytes())]
    return cache.key_of((config.to_json(), top.module, str(top.settings), *toolchain.versions(), *parts))


def _entry(root: Path, key: str, build: Callable[[Path], None]) -> Path:
    """Return a cache entry as :func:`.cache.entry` does; keep the log of a build that fails."""

    def build_or_keep_log(folder: Path) -> None:
        try:
            build(folder)
        except ToolError as error:
            # The folder is removed; the log is kept for the user.
            log, kept = folder / "build.log", root / "failed-build.log"
            if str(log) in str(error):
                log.replace(kept)
            raise ToolError(str(error).replace(str(log), str(kept))) from None

    return cache.entry(root, key, build_or_keep_log)


def library(config: Config, *, top: Top = AXI, root: Path | None = None, progress: Progress = silent) -> Path:
    """Build the simulator of a top level of ``config`` as a shared library.

    Raises
    ------
    ToolError
        If a required program is missing, or fails.
    """
    text = verilog(config, top=top, asserted=True, root=root, progress=progress)
    return library_of(text, config, top=top, root=root, progress=progress)


def library_of(
    text: str, config: Config, *, top: Top = AXI, root: Path | None = None, progress: Progress = silent
) -> Path:
    """Build the simulator of the Verilog ``text``, which has the ports of a top level."""
    root = root or simulator_root()
    key = _library_key(text, config, top)

    def build(folder: Path) -> None:
        _build(text, config, top, folder, root, progress)
        if _library_key(text, config, top) != key:
            raise ToolError("the harness's sources must stay the same while it is compiled; try again")

    return _entry(root, f"library-{key}", build) / "core.so"


def _library_key(text: str, config: Config, top: Top) -> str:
    shape = f"{config.axi.data_bytes} {config.array.lanes} {config.memory.feature_bytes} {config.cluster}"
    settings = (
        *VERILATOR_FLAGS,
        str(top.is_rewritten),
        *_optimisation(top),
        *RUNTIME_FLAGS,
        RULES,
        shape,
        *toolchain.versions(),
    )
    return cache.key_of((text, *settings, *(path.read_bytes() for path in top.harness), *_WRAPPING))


def _build(text: str, config: Config, top: Top, folder: Path, root: Path, progress: Progress) -> None:
    toolchain.check_programs()
    log, env = folder / "build.log", toolchain.environment()
    (folder / "core.v").write_text(wrap(text, MODULE, top.clock, is_rewritten=top.is_rewritten))
    (folder / "rules.vlt").write_text(RULES)
    jobs = str(os.cpu_count() or 1)

    progress("translating Verilog to C++")
    toolchain.run(
        ["verilator", *VERILATOR_FLAGS, "-Mdir", "model", "rules.vlt", "core.v"], cwd=folder, env=env, log=log
    )
    model = folder / "model"
    (model / "design.h").write_text(top.header((model / "Vcore___024root.h").read_text(), config))

    progress("compiling the simulator (once for each configuration)")
    objects = _runtime(root)
    toolchain.run(
        ["make", "-C", "model", "-f", "Vcore.mk", "-j", jobs, *_optimisation(top), "libVcore.a"],
        cwd=folder,
        env=env,
        log=log,
    )
    include = toolchain.verilator_folder() / "include"
    toolchain.run(
        [
            "g++",
            *RUNTIME_FLAGS,
            "-shared",
            "-Imodel",
            f"-I{top.harness[0].parent}",
            f"-I{include}",
            f"-I{include / 'vltstd'}",
            "-o",
            "core.so",
            str(top.harness[0]),
            "model/libVcore.a",
            *objects,
            "-lpthread",
        ],
        cwd=folder,
        env=env,
        log=log,
    )
    for path in sorted(model.iterdir()):
        path.unlink()
    model.rmdir()


def _optimisation(top: Top) -> tuple[str, str]:
    """Return make variables that optimise code of every cycle and code of the simulation's beginning."""
    # The model's functions are called only from this library. A netlist has ten times as many, and runs once.
    options = ("-O2" if top.is_rewritten else "-O1", "-fvisibility=hidden", *toolchain.processor_options())
    return f"OPT_FAST={' '.join(options)}", "OPT_SLOW=-O0"


def _runtime(root: Path) -> list[str]:
    """Compile Verilator's own runtime, once for all simulators."""
    include = toolchain.verilator_folder() / "include"

    def build(folder: Path) -> None:
        for name in RUNTIME_SOURCES:
            toolchain.run(
                ["g++", *RUNTIME_FLAGS, f"-I{include}", f"-I{include / 'vltstd'}", "-c", str(include / name)],
                cwd=folder,
                env=toolchain.environment(),
                log=folder / "build.log",
            )

    key = cache.key_of((*RUNTIME_FLAGS, *RUNTIME_SOURCES, *toolchain.versions()))
    return [str(path) for path in sorted(_entry(root, f"runtime-{key}", build).glob("*.o"))]
