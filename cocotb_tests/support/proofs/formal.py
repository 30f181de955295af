"""Proofs for all inputs: a component with assumptions and assertions, and what they may know of its inside.

A proof is a :class:`Proof`: it holds the unit, gives it free inputs, assumes what its protocol promises, and asserts
what must hold. What an induction needs to know about the unit's registers is asserted too, of the variables that
:func:`inside` finds in its ``elaborate``. :func:`.prove.prove` decides.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

from amaranth.asserts import AnyConst
from amaranth.hdl import Elaboratable, Module, Shape, ShapeLike, Signal, Value, ValueLike
from amaranth.lib import memory, wiring


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


def inside(unit: wiring.Component) -> SimpleNamespace:
    """The variables of a component's ``elaborate`` and of its methods that it calls, by their names.

    Where methods have variables of the same name, those of each stand under the method's name too. The component must
    be a submodule, of the proof or of another one, that has not been elaborated; it is then elaborated as seen here.
    """
    variables: dict[str, Any] = {}

    def look(frame: FrameType, event: str, argument: object) -> None:
        # Of outer calls last, which have the better claim to a name.
        if event == "return" and frame.f_locals.get("self") is unit:
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
