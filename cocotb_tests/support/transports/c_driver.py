"""The exported C driver, compiled and called: its transport is any of the Python driver's."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lutterfly.golden import registers
from lutterfly.golden.program.program import Program
from lutterfly.golden.registers import REGISTERS
from lutterfly.host.driver.ports import port_dtype
from lutterfly.host.driver.transport import Transport
from lutterfly.host.integration.export import DRIVER, ModelSource, files

STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion")
#: What the driver returns, in the order of lutterfly.h.
STATUSES = (
    *("OK", "BAD_ARGUMENT", "TRANSPORT_FAILED", "WRONG_ID", "WRONG_VERSION", "WRONG_CONFIGURATION", "WRONG_MODEL"),
    *("ARENA_TOO_SMALL", "NOT_LOADED", "WRONG_COUNT", "WRONG_LENGTH", "STOPPED", "RUN_TIMEOUT", "RESET_TIMEOUT"),
)
BODY = 0xFFFF_FFFF
_FAILURE = -5
_STATUS = REGISTERS["STATUS"].address
_HERE = Path(__file__).parent
_WORD, _POINTER, _INT, _SIZE = ctypes.c_uint32, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t


class _Transport(ctypes.Structure):
    _fields_ = (
        ("context", _POINTER),
        ("read_register", ctypes.CFUNCTYPE(_INT, _POINTER, _WORD, ctypes.POINTER(_WORD))),
        ("write_register", ctypes.CFUNCTYPE(_INT, _POINTER, _WORD, _WORD)),
        ("read_memory", ctypes.CFUNCTYPE(_INT, _POINTER, _WORD, _POINTER, _WORD)),
        ("write_memory", ctypes.CFUNCTYPE(_INT, _POINTER, _WORD, _POINTER, _WORD)),
        ("wait", ctypes.CFUNCTYPE(_INT, _POINTER, _WORD)),
    )


class Error(ctypes.Structure):
    """What went wrong, as lutterfly.h has it."""

    _fields_ = (
        ("status", ctypes.c_int),
        *((name, _WORD) for name in ("code", "unit", "index", "address", "core", "stage", "expected", "found")),
    )


class _Buffer(ctypes.Structure):
    _fields_ = (("data", _POINTER), ("bytes", _SIZE))


def compile_shared(folder: Path, source: ModelSource) -> Path:
    """The model with the driver and the shim as a shared library that stops at undefined behaviour."""
    for name, data in files(source).items():
        (folder / name).write_bytes(data)
    library, driver = folder / "driver.so", [name for name in DRIVER if name.endswith(".c")]
    command = [
        *("gcc", "-std=c99", *STRICT, "-O1", "-fPIC", "-shared", "-Wl,-Bsymbolic", "-I."),
        *("-fsanitize=undefined", "-fno-sanitize-recover=all"),
        *(f'-DMODEL_HEADER="{source.name}.h"', f"-DMODEL={source.name}"),
        *("-o", library.name, f"{source.name}.c", *driver, str(_HERE / "c_driver_shim.c")),
    ]
    subprocess.run(command, cwd=folder, check=True)
    return library


class CDriver:
    """The C driver of a program over a Python transport.

    Parameters
    ----------
    folder : Path
        Where it is compiled.
    program : Program
    transport : Transport
    stage_bytes : int or None
        Of the arena that the stages are made for; by default the program's.
    polls : bool
        Whether it polls STATUS, and has no function that waits.

    Attributes
    ----------
    calls : list of str
        Names of the transport's functions, as they were called.
    fails_at : int
        The number of the call that fails; -1 for none.
    """

    def __init__(
        self,
        folder: Path,
        program: Program,
        transport: Transport,
        *,
        stage_bytes: int | None = None,
        polls: bool = False,
    ):
        self.program = program
        self.transport = transport
        self.calls: list[str] = []
        self.fails_at = -1
        self._polls = polls
        self.source = ModelSource("digits", program, stage_bytes or program.arena_bytes)
        self._library = ctypes.CDLL(str(compile_shared(folder, self.source)))
        self._library.shim_error.restype = ctypes.POINTER(Error)
        self._library.lutterfly_error_text.restype = _SIZE
        self._library.lutterfly_error_text.argtypes = (_POINTER, ctypes.c_char_p, _SIZE)
        self._callbacks = _Transport(None, *(kind(self._guarded(name)) for name, kind in _Transport._fields_[1:]))
        if polls:
            self._callbacks.wait = type(self._callbacks.wait)()

    def _guarded(self, name: str) -> Callable[..., int]:
        act = getattr(self, f"_{name}")

        def call(_context: object, *arguments: Any) -> int:
            self.calls.append(name)
            if len(self.calls) - 1 == self.fails_at:
                return _FAILURE
            act(*arguments)
            return 0

        return call

    def _read_register(self, offset: int, value: Any) -> None:
        if self._polls and offset == _STATUS:
            self.transport.wait_for_interrupt(1)
        value[0] = self.transport.read_register(offset)

    def _write_register(self, offset: int, value: int) -> None:
        self.transport.write_register(offset, value)

    def _read_memory(self, address: int, data: int, size: int) -> None:
        found = self.transport.read_memory(self.transport.arena_base + address, size)
        ctypes.memmove(data, found, size)

    def _write_memory(self, address: int, data: int, size: int) -> None:
        self.transport.write_memory(self.transport.arena_base + address, ctypes.string_at(data, size))

    def _wait(self, cycles: int) -> None:
        self.transport.wait_for_interrupt(cycles)

    def open(self, *, base: int | None = None, arena_bytes: int | None = None) -> str:
        """Open the device; the status by its name."""
        base = self.transport.arena_base if base is None else base
        size = self.transport.arena_bytes if arena_bytes is None else arena_bytes
        return STATUSES[self._library.shim_open(ctypes.byref(self._callbacks), _WORD(base), _WORD(size))]

    def load(self) -> str:
        """Load the program."""
        return STATUSES[self._library.shim_load()]

    def load_other(self, config_hash: int, cores: int) -> str:
        """Load one for another configuration."""
        return STATUSES[self._library.shim_load_other(_WORD(config_hash), _WORD(cores))]

    def reset(self) -> str:
        """Reset the hardware."""
        return STATUSES[self._library.shim_reset()]

    def set_watchdog(self, cycles: int) -> None:
        """Cycles without progress, from the next run on."""
        self._library.shim_set_watchdog(_WORD(cycles))

    def infer(self, inputs: Sequence[np.ndarray], *, outputs: Sequence[np.ndarray] | None = None) -> list[np.ndarray]:
        """Run an inference.

        Raises
        ------
        RuntimeError
            With the status and the text of the error.
        """
        if outputs is None:
            outputs = [np.full(port.onnx_shape, 0x55, port_dtype(port)) for port in self.program.outputs]
        buffers = []
        for arrays in (inputs, outputs):
            buffers += [(_Buffer * len(arrays))(*((array.ctypes.data, array.nbytes) for array in arrays)), len(arrays)]
        given, given_count, taken, taken_count = buffers
        status = STATUSES[self._library.shim_infer(given, _SIZE(given_count), taken, _SIZE(taken_count))]
        if status != "OK":
            raise RuntimeError(f"{status}: {self.text()}")
        return list(outputs)

    @property
    def cycles(self) -> int:
        """Of the last run."""
        return self._library.shim_cycles()

    @property
    def error(self) -> Error:
        """What went wrong last."""
        return self._library.shim_error().contents

    def text(self, room: int = 256) -> str:
        """It in words, in so much room."""
        buffer = ctypes.create_string_buffer(b"\xee" * (room + 1))
        length = self._library.lutterfly_error_text(ctypes.byref(self.error), buffer, room)
        assert buffer.raw[room] == 0xEE, "it writes no more than there is room for"
        found = ctypes.string_at(buffer) if room else b""
        assert len(found) == min(length, max(room - 1, 0))
        return found.decode("ascii")


class Idle(Transport):
    """Hardware of one core whose runs end at once, and do nothing; a memory.

    Attributes
    ----------
    writes : list of (str, int)
        Registers with what was written.
    """

    arena_base = 0x1000
    arena_bytes = 1 << 20

    def __init__(self, program: Program):
        self.memory = bytearray(self.arena_bytes)
        self.writes: list[tuple[str, int]] = []
        self._values = {"ID": registers.ID, "VERSION": registers.VERSION, "CONFIG_HASH": program.config_hash}
        self._values |= {"STATUS": registers.STATUS_DONE}

    def read_register(self, address: int) -> int:
        """Of one core."""
        return next((value for name, value in self._values.items() if REGISTERS[name].address == address), 0)

    def write_register(self, address: int, value: int) -> None:
        """Written down."""
        self.writes += [(name, value) for name, register in REGISTERS.items() if register.address == address]

    def read_memory(self, address: int, size: int) -> bytes:
        """The memory."""
        self.check_range(address, size)
        return bytes(self.memory[address - self.arena_base :][:size])

    def write_memory(self, address: int, data: bytes) -> None:
        """The memory."""
        self.check_range(address, len(data))
        start = address - self.arena_base
        self.memory[start : start + len(data)] = data

    def wait_for_interrupt(self, timeout_cycles: int) -> bool:
        """It is there."""
        return True
