"""Amaranth's simulator as one that cocotb drives, in the test's own process.

cocotb reaches a simulator through the functions of one module, ``cocotb.simulator``: look a port up, read it, write it,
call back at a time, at a change, or when all has settled. A program that loads Python gives it these functions;
here :class:`Kernel` does, around Amaranth's simulator. So test files, benches, tasks, triggers, values, time limits,
seeds and cocotbext's models are what they are with Verilator, and none of them has a stand-in.

Within an instant the order is that of cocotb's own program for Verilator: what was written is told, then the design
settles, and what has changed of it is told, until nothing is written any more; then it is read-only. So whoever waits
for an edge sees registers as they were before it, and what is written then, they take at the next one.
Clocks change after whatever is written with them, so that registers see it settled.

What the design asserts raises AssertionError in Amaranth's simulator; it ends the run, and fails all its tests.
"""

from __future__ import annotations

import heapq
import io
import itertools
import logging
import os
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cocotb
import cocotb._gpi_triggers
import cocotb.clock
import cocotb.handle
import cocotb.regression
import cocotb.simtime
import cocotb.simulator
import cocotb.triggers
import pytest
from amaranth.hdl import ClockDomain, Fragment, Signal, Value
from amaranth.lib import wiring
from amaranth.sim import Simulator

from cocotb_tests.support.sampling import chosen
from lutterfly.hdl.parts.pipeline import Platform

#: A step is a picosecond, as with Verilator.
_PRECISION = -12
#: Of cocotb, which adds a number of its own for each test; $COCOTB_RANDOM_SEED changes it.
_SEED = 1
#: Two states for those of a Logic, as in Verilator: cocotbext's models write X while nothing is valid.
_TWO_STATES = str.maketrans("UXZWLH-", "0000010")


def run_tests(
    component: wiring.Component,
    module: str,
    *,
    platform: Platform,
    folder: Path,
    env: Mapping[str, str],
    testcase: str | None,
) -> tuple[Path, str]:
    """Run the cocotb tests of a module, or the one named ``testcase``, on a component.

    Parameters
    ----------
    module : str
        Its name; it is imported anew, with ``env`` in the environment.
    folder : Path
        Where cocotb's report is written.

    Returns
    -------
    Path
        cocotb's report.
    str
        What it logged of tests that failed.
    """
    kernel, results, output = Kernel(component, platform), folder / "results.xml", io.StringIO()
    log, handler = logging.getLogger("cocotb"), logging.StreamHandler(output)
    handler.setLevel(logging.WARNING)
    log.addHandler(handler)
    # pytest has imported it under the same name.
    own = sys.modules.pop(module, None)
    try:
        with _given(kernel, {**env, "COCOTB_RESULTS_FILE": str(results)}):
            manager = cocotb.regression.RegressionManager()
            manager.discover_tests(module)
            manager._test_queue = _sample(manager._test_queue)
            if testcase:
                manager.add_filters(f"{testcase}$")
                manager.set_mode(cocotb.regression.RegressionMode.TESTCASE)
            kernel.run(manager)
    finally:
        log.removeHandler(handler)
        sys.modules.pop(module, None)
        if own:
            sys.modules[module] = own
    return results, output.getvalue() if manager.failures else ""


def _sample(tests: Sequence[cocotb.regression.Test]) -> list[cocotb.regression.Test]:
    """Cases of parametrised tests that have every value of every parameter; Verilator runs all."""
    cases: dict[str, list[cocotb.regression.Test]] = defaultdict(list)
    for test in tests:
        cases[test.name.partition("/")[0]].append(test)
    found = []
    for of_one in cases.values():
        values = [dict(part.split("=", 1) for part in test.name.split("/")[1:]) for test in of_one]
        found += [of_one[place] for place in chosen(values, None) or [0]]
    return found


@contextmanager
def _given(kernel: Kernel, env: Mapping[str, str]) -> Iterator[None]:
    """Give cocotb this simulator, and what it finds out when one loads it."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        # cocotbext's models call what cocotb deprecates.
        warnings.simplefilter("default")
        warnings.simplefilter("ignore", DeprecationWarning)
        for name, value in env.items():
            patch.setenv(name, value)
        for name in Kernel.GIVEN:
            patch.setattr(cocotb.simulator, name, getattr(kernel, name))
        for name, value in {
            "is_simulation": True,
            "log": logging.getLogger("test"),
            "RANDOM_SEED": int(os.environ.get("COCOTB_RANDOM_SEED", _SEED)),
            "SIM_NAME": "Amaranth",
            "top": cocotb.handle.HierarchyObject(kernel, "dut"),
        }.items():
            patch.setattr(cocotb, name, value, raising=False)
        patch.setattr(cocotb.simtime, "time_precision", _PRECISION)
        patch.setattr(cocotb.handle, "_handle2obj", {})
        # The last simulation may have ended while it was read-only.
        patch.setattr(cocotb._gpi_triggers, "_current_gpi_trigger", cocotb.triggers.Timer(1))
        # What cocotb does itself where it does not trust a simulator: writes after all callbacks, and clocks.
        patch.setattr(cocotb.handle, "_schedule_write", lambda _, write, action, value: write(action.value, value))
        patch.setattr(cocotb.clock, "_trust_inertial", True)
        yield


@dataclass(eq=False)
class Callback:
    """What is to be called once; cocotb's ``sim_callback``."""

    function: Callable[[], Any]
    edge: int = cocotb.simulator.VALUE_CHANGE
    is_off: bool = False

    def deregister(self) -> None:
        """Call it no more."""
        self.is_off = True


class Port:
    """A signal of the component; cocotb's ``sim_obj``, with the type that it has in Verilog."""

    def __init__(self, kernel: Kernel, name: str, signal: Signal, *, is_clock: bool = False):
        self.is_clock = is_clock
        self.callbacks: list[Callback] = []
        self.seen = 0
        self._kernel = kernel
        self._name = name
        self._width = len(signal)
        self._mask = (1 << self._width) - 1
        self._is_signed = signal.shape().signed
        # Its place in the engine, since expressions, which the public functions take, cost ten times as much.
        self._slot = kernel.engine.state.slots[kernel.engine.state.get_signal(signal)]

    def read(self) -> int:
        """Its value, as an unsigned integer, with what was written just now."""
        return self._slot.next & self._mask

    def write(self, value: int) -> None:
        """Give it a value, which the next step of the design takes."""
        self._slot.update(value - self._mask - 1 if self._is_signed and value > self._mask >> 1 else value)

    def get_name_string(self) -> str:
        return self._name

    def get_type(self) -> int:
        return cocotb.simulator.LOGIC if self._width == 1 else cocotb.simulator.PACKED

    def get_type_string(self) -> str:
        return "Signal"

    def get_definition_name(self) -> str:
        return ""

    def get_definition_file(self) -> str:
        return ""

    def get_num_elems(self) -> int:
        return self._width

    def get_range(self) -> tuple[int, int, int]:
        return self._width - 1, 0, cocotb.simulator.RANGE_DOWN

    def get_const(self) -> bool:
        return False

    def get_signed(self) -> bool:
        return False

    def get_signal_val_binstr(self) -> str:
        return f"{self.read():0{self._width}b}"

    def set_signal_val_int(self, action: int, value: int) -> None:
        if action != cocotb.handle._GPISetAction.DEPOSIT.value:
            raise NotImplementedError("a port can be deposited to alone")
        self._kernel.written[self] = value & self._mask

    def set_signal_val_binstr(self, action: int, value: str) -> None:
        self.set_signal_val_int(action, int(value.translate(_TWO_STATES), 2))


class Clock:
    """A clock that needs no task; cocotb's ``cpp_clock``."""

    def __init__(self, kernel: Kernel, port: Port):
        self._kernel = kernel
        self._port = port

    def start(self, period: int, high: int, starts_high: bool, _: int) -> None:
        """Run from now on; times are in steps."""
        self._steps = (period - high, high)
        self._set(int(starts_high))

    def stop(self) -> None:
        """Stay at the present level."""
        self._next.deregister()

    def _set(self, level: int) -> None:
        self._kernel.written[self._port] = level
        self._next = self._kernel.register_timed_callback(self._steps[level], lambda: self._set(1 - level))


class Kernel:
    """A component in Amaranth's simulator, with cocotb's functions of a simulator; its root handle as well.

    Attributes
    ----------
    written : dict of Port to int
        What is to be written when the callbacks of now have ended.
    engine
        Amaranth's.
    """

    #: What ``cocotb.simulator`` is given of it.
    GIVEN = (
        "get_sim_time",
        "stop_simulator",
        "register_timed_callback",
        "register_value_change_callback",
        "register_readonly_callback",
        "register_rwsynch_callback",
        "register_nextstep_callback",
        "clock_create",
    )

    def __init__(self, component: wiring.Component, platform: Platform):
        self._simulator = Simulator(Fragment.get(component, platform))
        self.engine = self._simulator._engine
        self.written: dict[Port, int] = {}
        self._ports = {}
        for path, _, value in component.signature.flatten(component):
            self._add("__".join(map(str, path)), Value.cast(value))
        # Those that are used: the simulator has made them, and names them nowhere else.
        for name, domain in self._simulator._design.fragment.domains.items():
            self._add_clock("" if name == "sync" else f"{name}_", domain)
        self._watched: list[Port] = []
        self._timed: list[tuple[int, int, Callback]] = []
        self._order = itertools.count()
        self._waiting: dict[str, list[Callback]] = {}
        self._now = 0
        self._is_stopped = False

    def _add(self, name: str, signal: Signal, **options: bool) -> None:
        if len(signal):
            self._ports[name] = Port(self, name, signal, **options)

    def _add_clock(self, prefix: str, domain: ClockDomain) -> None:
        self._add(f"{prefix}clk", domain.clk, is_clock=True)
        if domain.rst is not None:
            self._add(f"{prefix}rst", domain.rst)

    def run(self, manager: cocotb.regression.RegressionManager) -> None:
        """Run all tests of a regression, one after the other."""
        self.engine.step_design()
        manager.start_regression()
        try:
            while not self._is_stopped and self._finish_instant():
                pass
        except AssertionError as error:
            manager.log.error("the design asserts: %s", error)
        if not self._is_stopped:
            manager._on_sim_end()

    def _finish_instant(self) -> bool:
        """What is left of this instant, and the beginning of the next one; whether there is one."""
        while self.written or self._waiting.get("read-write"):
            while self.written:
                self._write()
                self._call(self._changed())
                self.engine.step_design()
                self._call(self._changed())
            self._call(self._waiting.pop("read-write", []))
        self._call(self._waiting.pop("read-only", []))
        while self._timed and self._timed[0][2].is_off:
            heapq.heappop(self._timed)
        if self._is_stopped or not self._timed:
            return False
        self._now = self._timed[0][0]
        self._call(self._waiting.pop("next step", []))
        due = []
        while self._timed and self._timed[0][0] == self._now:
            due.append(heapq.heappop(self._timed)[2])
        self._call(due)
        return True

    def _write(self) -> None:
        written, self.written = self.written, {}
        clocks = [port for port in written if port.is_clock]
        for port, value in written.items():
            if not port.is_clock:
                port.write(value)
        if clocks and len(clocks) < len(written):
            self.engine.step_design()
        for port in clocks:
            port.write(written[port])

    def _changed(self) -> list[Callback]:
        """Callbacks of ports that have changed; those for another edge stay."""
        found = []
        for port in self._watched:
            before, port.seen = port.seen, port.read()
            if before != port.seen:
                edge = cocotb.simulator.RISING if port.seen else cocotb.simulator.FALLING
                met = (edge, cocotb.simulator.VALUE_CHANGE)
                found += [callback for callback in port.callbacks if callback.edge in met]
                port.callbacks = [callback for callback in port.callbacks if callback.edge not in met]
        return found

    @staticmethod
    def _call(callbacks: list[Callback]) -> None:
        for callback in callbacks:
            if not callback.is_off:
                callback.function()

    def get_handle_by_name(self, name: str, _: object = None) -> Port | None:
        return self._ports.get(name)

    def iterate(self, _: int) -> Iterator[Port]:
        return iter(self._ports.values())

    def get_name_string(self) -> str:
        return "dut"

    def get_type_string(self) -> str:
        return "Module"

    def get_definition_name(self) -> str:
        return ""

    def get_sim_time(self) -> tuple[int, int]:
        return self._now >> 32, self._now & 0xFFFF_FFFF

    def stop_simulator(self) -> None:
        self._is_stopped = True

    def register_timed_callback(self, steps: int, function: Callable[[], Any]) -> Callback:
        callback = Callback(function)
        heapq.heappush(self._timed, (self._now + steps, next(self._order), callback))
        return callback

    def register_value_change_callback(self, port: Port, function: Callable[[], Any], edge: int) -> Callback:
        if port not in self._watched:
            self._watched.append(port)
            port.seen = port.read()
        port.callbacks.append(callback := Callback(function, edge))
        return callback

    def register_readonly_callback(self, function: Callable[[], Any]) -> Callback:
        return self._wait("read-only", function)

    def register_rwsynch_callback(self, function: Callable[[], Any]) -> Callback:
        return self._wait("read-write", function)

    def register_nextstep_callback(self, function: Callable[[], Any]) -> Callback:
        return self._wait("next step", function)

    def clock_create(self, port: Port) -> Clock:
        return Clock(self, port)

    def _wait(self, phase: str, function: Callable[[], Any]) -> Callback:
        self._waiting.setdefault(phase, []).append(callback := Callback(function))
        return callback
