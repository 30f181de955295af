"""A component in Verilator: its Verilog, compiled for cocotb, and run in a process of its own."""

from __future__ import annotations

import inspect
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import cocotb
from cocotb_tools.runner import get_runner

from lutterfly.host.simulation import cache, toolchain

#: Compile time counts here, not speed: the Verilog of a test differs from the next one's. cocotb makes all signals
#: public, which keeps Verilator from simplifying any; a test sees those of the component itself, not of its parts.
VERILATOR_FLAGS = (
    "-O3",
    "--no-public-flat-rw",
    "--public-depth",
    "1",
    "--x-assign",
    "fast",
    "--x-initial",
    "fast",
    *(f"-Wno-{name}" for name in toolchain.WAIVED_WARNINGS),
)
OPTIMISATION = {"OPT_FAST": "-O1", "OPT_SLOW": "-O0", "OPT_GLOBAL": "-O1"}
#: With ``--quick-build``.
NO_OPTIMISATION = dict.fromkeys(OPTIMISATION, "-O0")

#: Headers that every design's code begins with. They take longer to compile than most designs: they are precompiled.
RUNTIME_HEADER = "runtime.h"
RUNTIME_HEADERS = "".join(f"#include <{name}>\n" for name in ("verilated.h", "verilated_vpi.h", "verilated_dpi.h"))


def run_tests(
    text: str, module: str, *, folder: Path, env: Mapping[str, str], testcase: str | None, root: Path, quick: bool
) -> tuple[Path, str]:
    """Run the cocotb tests of a module, or the one named ``testcase``, on the Verilog of a module ``dut``.

    Parameters
    ----------
    text : str
        The Verilog, built with Verilator as :func:`built` says.
    folder : Path
        Where they run.

    Returns
    -------
    Path
        cocotb's report.
    str
        What it logged, of a run that failed.
    """
    results, log, simulator = folder / "results.xml", folder / "cocotb.log", built(text, root, quick=quick)
    try:
        get_runner("verilator").test(
            hdl_toplevel="dut",
            hdl_toplevel_lang="verilog",
            test_module=module,
            testcase=testcase,
            build_dir=simulator,
            test_dir=folder,
            extra_env=env,
            results_xml=str(results),
            log_file=log,
            verbose=False,
        )
    except (SystemExit, RuntimeError):
        # A test failed, or the simulator ended itself, as it does where the design asserts.
        return results, log.read_text(errors="replace") if log.exists() else "no output"
    return results, ""


def built(text: str, root: Path, *, quick: bool) -> Path:
    """The folder of the simulator of a module ``dut``, built unless ``root`` has one of the same text and tools."""
    optimisation = NO_OPTIMISATION if quick else OPTIMISATION
    flags = (*VERILATOR_FLAGS, *optimisation.values(), cocotb.__version__, cocotb.__file__, *toolchain.versions())
    shared = root / f"runtime-{runtime_key(flags)}"
    return cache.entry(root, cache.key_of((text, *flags)), lambda folder: _build(text, folder, shared, optimisation))


def runtime_key(flags: Iterable[str]) -> str:
    """The key of what every component shares: it differs if anything does that is kept, or how it is built."""
    # A cache outlives the tests: what an earlier version kept under the same flags may lack what this one needs.
    return cache.key_of((inspect.getsource(_keep_runtime), RUNTIME_HEADER, RUNTIME_HEADERS, *flags))


def _build(text: str, folder: Path, runtime: Path, optimisation: Mapping[str, str]) -> None:
    toolchain.check_programs()
    source = folder / "dut.v"
    source.write_text(text)
    # Verilator's own runtime is the same for every component: take it from the first one.
    if has_runtime := cache.is_whole(runtime):
        optimisation = {**optimisation, "OPT_FAST": f"{optimisation['OPT_FAST']} -include {runtime / RUNTIME_HEADER}"}
        for path in runtime.glob("*.o"):
            shutil.copyfile(path, folder / path.name)
            # Newer than the makefile to come, or make would compile it again.
            os.utime(folder / path.name, (time.time() + 3600, time.time() + 3600))
    log = folder / "build.log"
    before = dict(os.environ)
    # One file in all, however large: Verilator precompiles headers of their own for several, and one set is the limit.
    env = toolchain.environment(**optimisation, VM_PARALLEL_BUILDS="0")
    try:
        os.environ.update(env)
        get_runner("verilator").build(
            sources=[source],
            hdl_toplevel="dut",
            build_dir=folder,
            timescale=("1ns", "1ps"),
            build_args=VERILATOR_FLAGS,
            log_file=log,
        )
    except RuntimeError as error:
        raise toolchain.ToolError(
            f"Verilator or the compiler failed:\n{log.read_text(errors='replace')[-10_000:]}"
        ) from error
    finally:
        os.environ.clear()
        os.environ.update(before)
    if not has_runtime:
        cache.entry(runtime.parent, runtime.name, lambda target: _keep_runtime(folder, target, env=env, log=log))
    # Only the executable is needed from here on.
    for path in folder.iterdir():
        if path.name not in ("dut", "dut.v", "build.log"):
            path.unlink()


def _keep_runtime(folder: Path, target: Path, *, env: dict[str, str], log: Path) -> None:
    # Not cocotb's main program, verilator.o: it has the size of this design's model compiled in.
    for path in folder.glob("verilated*.o"):
        shutil.copyfile(path, target / path.name)
    (folder / RUNTIME_HEADER).write_text(RUNTIME_HEADERS)
    precompiled = f"{RUNTIME_HEADER}.fast.gch"
    # By Verilator's own makefile: the compiler takes what was precompiled with the same options alone.
    toolchain.run(["make", "-f", "Vtop.mk", precompiled], cwd=folder, env=env, log=log)
    shutil.copyfile(folder / RUNTIME_HEADER, target / RUNTIME_HEADER)
    shutil.copyfile(folder / precompiled, target / f"{RUNTIME_HEADER}.gch")
