"""The driver: programs and inferences on one accelerator, over any transport, with every wait bounded."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from ...golden import registers
from ...golden.config import Config
from ...golden.isa import COMMAND_BYTES, ErrorCode, Opcode, Unit
from ...golden.program import Program, Queues
from ...golden.registers import REGISTERS
from ...golden.timing import reset_cycles
from . import ports
from .transport import Run, Transport

COUNTERS = ("CYCLES", "DMA_BUSY", "DMA_STALLED", "COMPUTE_BUSY", "COMPUTE_STALLED", "DMA_DONE", "COMPUTE_DONE")

#: Polls of STATUS, each after twice the time that a soft reset takes, until it must be over.
_RESET_POLLS = 10
#: A run that its watchdog does not stop moves on, however slowly: this bounds it.
_CYCLES_AT_LEAST, _TIMES_PREDICTED = 2_000_000, 100

_DMA_UNITS = (Unit.DMA_QUEUE, Unit.LOAD, Unit.STORE, Unit.FILL)
_COMPUTE_UNITS = (Unit.COMPUTE_QUEUE, Unit.FETCH, Unit.WRITE_BACK)
#: ERROR_ADDRESS means something with these: a local address, or an external one relative to EXTERNAL_BASE.
_WITH_ADDRESS = (ErrorCode.ADDRESS_RANGE, ErrorCode.AXI_SLAVE, ErrorCode.AXI_DECODE)
_REMEDIES = {
    ErrorCode.ILLEGAL_OPCODE: "compile the model again: the program is damaged",
    ErrorCode.ILLEGAL_ENGINE: "compile the model for the configuration of this hardware",
    ErrorCode.ILLEGAL_FIELD: "compile the model again: the program is damaged",
    ErrorCode.ADDRESS_RANGE: "compile the model for the configuration of this hardware",
    ErrorCode.AXI_SLAVE: "check the external memory at that address",
    ErrorCode.AXI_DECODE: "check that the arena lies in external memory",
    ErrorCode.WATCHDOG: "check that the external memory answers, or raise the watchdog's limit",
    ErrorCode.TOKENS_LEFT: "compile the model again: the program is damaged",
    ErrorCode.PROGRAM_END: "compile the model again: the program is damaged",
    ErrorCode.OVERFLOW: "report it with the model: a result found no place in the core, which is a fault of the core",
}


class HardwareError(RuntimeError):
    """What answers is not an accelerator of the expected version and configuration."""


class AcceleratorError(RuntimeError):
    """A run that stopped.

    Attributes
    ----------
    code : ErrorCode
        Why; ``NONE`` if the accelerator does not answer in time.
    unit : Unit
        Where.
    index : int
        Of the command in its queue.
    address : int
        Address out of range, or external address of the failed burst; 0 where there is none.
    command : str
        What the command was, in words.
    """

    def __init__(
        self, message: str, *, code: ErrorCode, unit: Unit, index: int = 0, address: int = 0, command: str = ""
    ):
        super().__init__(message)
        self.code = code
        self.unit = unit
        self.index = index
        self.address = address
        self.command = command


def check_config(program: Program, config: Config) -> None:
    """Raise ValueError if ``program`` was compiled for another configuration than ``config``."""
    if program.config_hash != config.hash:
        raise ValueError(
            f"program must be for the configuration of this hardware ({config.hash:#010x}), not for "
            f"{program.config_name} ({program.config_hash:#010x}); compile the model again for this one"
        )


class _Begun(threading.local):
    """The run that a thread has started."""

    run: Run | None = None


class Driver:
    """Programs on one accelerator.

    Several drivers may share a transport, in several threads: each :meth:`infer` has the accelerator to itself, and
    finds its own program there, which is loaded again if another driver's has taken its place. What :meth:`begin`
    starts ends when anybody else uses the accelerator before :meth:`finish`; hold ``transport.exclusive()`` around both
    where there is anybody.

    Parameters
    ----------
    transport : Transport
    config : Config
        What the hardware must have been generated from.
    watchdog_cycles : int
        Cycles without progress after which the hardware stops a run.

    Raises
    ------
    HardwareError
        If ID, version or configuration hash differ.
    """

    def __init__(self, transport: Transport, config: Config, *, watchdog_cycles: int = registers.WATCHDOG_DEFAULT):
        self._transport = transport
        self._config = config
        self._watchdog_cycles = watchdog_cycles
        self._program: Program | None = None
        # Of each thread its own: what another one has begun is not this one's to finish.
        self._begun = _Begun()
        self._counters: dict[str, int] | None = None
        for name, expected, remedy in (
            ("ID", registers.ID, "check the register port's address"),
            ("VERSION", registers.VERSION, "use the release of lutterfly that the hardware was generated with"),
            ("CONFIG_HASH", config.hash, "name the configuration that the hardware was generated from"),
        ):
            with transport.exclusive():
                found = self._read(name)
            if found != expected:
                raise HardwareError(f"{name} must be {expected:#010x}, not {found:#010x}; {remedy}")

    def load(self, program: Program) -> None:
        """Make ``program`` the current one: write it to external memory and run its prologue, unless it is there.

        Raises
        ------
        ValueError
            If the program is for another configuration, or larger than the arena; nothing has changed then.
        AcceleratorError
            If the prologue does not end well.
        """
        check_config(program, self._config)
        if program.arena_bytes > self._transport.arena_bytes:
            raise ValueError(
                f"program must fit the arena of {self._transport.arena_bytes} bytes, "
                f"not need {program.arena_bytes} bytes"
            )
        with self._transport.exclusive():
            self._program = program
            self._prepare()

    def infer(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run one inference.

        Parameters
        ----------
        inputs : sequence of int8 or uint8 arrays
            The ONNX tensors of the program's input ports, in order.

        Returns
        -------
        list of int8 or uint8 arrays
            The ONNX tensors of the output ports, in order.

        Raises
        ------
        TypeError, ValueError
            If an input is of the wrong type or shape; nothing has been written then.
        AcceleratorError
            If the run stops or does not end in time.
        """
        with self._transport.exclusive():
            self.begin(inputs)
            return self.finish()

    def begin(self, inputs: Sequence[np.ndarray]) -> None:
        """Write the inputs and start the inference; :meth:`finish` must follow."""
        program = self._loaded()
        if len(inputs) != len(program.inputs):
            raise ValueError(f"inputs must be {len(program.inputs)} arrays, not {len(inputs)}")
        checked = [ports.check(port, array) for port, array in zip(program.inputs, inputs, strict=True)]
        with self._transport.exclusive():
            self._prepare()
            for port, array in zip(program.inputs, checked, strict=True):
                self._write_arena(port.address, ports.to_image(port, array))
            self._start(program.body)

    def finish(self) -> list[np.ndarray]:
        """Wait for the inference that :meth:`begin` started, and read its outputs.

        Raises
        ------
        RuntimeError
            If this thread has begun none, or another driver or thread has used the accelerator since.
        AcceleratorError
            If the run stops or does not end in time.
        """
        program = self._loaded()
        with self._transport.exclusive():
            self._wait()
            outputs = []
            for port in program.outputs:
                data = self._transport.read_memory(self._transport.arena_base + port.address, port.size_bytes)
                outputs.append(ports.from_image(port, data))
            return outputs

    def reset(self) -> None:
        """Bring the hardware back from whatever it does; the prologue runs again before the next inference.

        Raises
        ------
        AcceleratorError
            If the reset does not end; it waits for nothing outside the core.
        """
        state, cycles_per_poll = self._transport.state, 2 * reset_cycles(self._config)
        with self._transport.exclusive():
            state.program, state.must_reset = None, True
            self._write("CONTROL", registers.CONTROL_RESET)
            for _ in range(_RESET_POLLS):
                if not self._read("STATUS") & registers.STATUS_RESETTING:
                    self._begun.run = state.run = None
                    state.must_reset = False
                    return
                self._transport.wait_for_interrupt(cycles_per_poll)
        raise AcceleratorError(
            f"a soft reset must end within {_RESET_POLLS * cycles_per_poll} cycles, and does not; "
            "reset the hardware as a whole",
            code=ErrorCode.NONE,
            unit=Unit.NONE,
        )

    def counters(self) -> dict[str, int]:
        """The performance counters of this driver's last run, by the names of ``COUNTERS`` in lower case.

        Raises
        ------
        RuntimeError
            If it has run nothing.
        """
        if self._counters is None:
            raise RuntimeError("an inference must have ended; call infer")
        return dict(self._counters)

    def _loaded(self) -> Program:
        if self._program is None:
            raise RuntimeError("a program must be loaded first; call load")
        return self._program

    def _prepare(self) -> None:
        """Have the program resident and the hardware idle."""
        program, state = self._loaded(), self._transport.state
        if state.must_reset or state.run is not None:
            self.reset()
        # An equal one of another driver is as good.
        if state.program is not None and state.program == program:
            return
        state.program = None
        # Other commands may lie where the hardware has fetched the ones that it holds.
        state.settings.clear()
        # All of it, also after a reset: what a failed run wrote into external memory is not known.
        for address, data in (
            (program.constants_address, program.constants),
            *((queues.dma_address, queues.dma) for queues in (program.prologue, program.body)),
            *((queues.compute_address, queues.compute) for queues in (program.prologue, program.body)),
        ):
            self._write_arena(address, data)
        self._start(program.prologue)
        self._wait()
        state.program = program

    def _start(self, queues: Queues) -> None:
        settings = {
            "EXTERNAL_BASE": self._transport.arena_base,
            "DMA_PROGRAM": queues.dma_address,
            "DMA_COMMANDS": len(queues.dma) // COMMAND_BYTES,
            "COMPUTE_PROGRAM": queues.compute_address,
            "COMPUTE_COMMANDS": len(queues.compute) // COMMAND_BYTES,
            "WATCHDOG": self._watchdog_cycles,
            "INTERRUPT_ENABLE": 1,
        }
        # What is written again counts as changed: the hardware would fetch commands that it still holds.
        state = self._transport.state
        for name, value in settings.items():
            if state.settings.get(name) != value:
                # Unknown if the write fails.
                state.settings.pop(name, None)
                self._write(name, value)
                state.settings[name] = value
        self._write("INTERRUPT", 1)
        self._begun.run = state.run = Run(queues)
        self._write("CONTROL", registers.CONTROL_START)

    def _wait(self) -> None:
        run, program, state = self._begun.run, self._loaded(), self._transport.state
        self._begun.run = None
        if run is None:
            raise RuntimeError("an inference must have begun; call begin")
        if state.run is not run:
            raise RuntimeError(
                "an inference must have the accelerator until its end, and another driver or thread has used it since; "
                "hold the transport's exclusive() from begin to finish"
            )
        limit = max(_CYCLES_AT_LEAST, _TIMES_PREDICTED * program.predicted_cycles)
        self._transport.wait_for_interrupt(limit)
        status = self._read("STATUS")
        self._write("INTERRUPT", 1)
        self._counters = {name.lower(): self._read(name) for name in COUNTERS}
        if status & registers.STATUS_DONE and not status & registers.STATUS_ERROR:
            state.run = None
            return
        state.run, state.program, state.must_reset = None, None, True
        if not status & registers.STATUS_ERROR:
            raise AcceleratorError(
                f"a run must end within {limit} cycles, and does not; check that the external memory answers",
                code=ErrorCode.NONE,
                unit=Unit.NONE,
            )
        raise self._error(run.queues)

    def _error(self, queues: Queues) -> AcceleratorError:
        word, address = self._read("ERROR"), self._read("ERROR_ADDRESS")
        code, unit, index = ErrorCode(word & 0xFF), Unit(word >> 8 & 0xFF), word >> 16
        command = self._describe(queues, unit, index)
        where = f" at address {address:#x}" if code in _WITH_ADDRESS else ""
        return AcceleratorError(
            f"{code.name} in {unit.name}{where}, {command}; {_REMEDIES.get(code, 'reset the hardware')}",
            code=code,
            unit=unit,
            index=index,
            address=address,
            command=command,
        )

    def _describe(self, queues: Queues, unit: Unit, index: int) -> str:
        """The command in words, as far as its queue is known."""
        program = self._loaded()
        run = "prologue" if queues is program.prologue else "body"
        if unit not in _DMA_UNITS + _COMPUTE_UNITS:
            return f"command {index} of the {run}"
        name, data = ("DMA", queues.dma) if unit in _DMA_UNITS else ("compute", queues.compute)
        start = index * COMMAND_BYTES
        code = data[start] & 15 if start < len(data) else None
        opcode = Opcode(code).name if code in Opcode.__members__.values() else f"opcode {code}"
        words = f"command {index} ({opcode}) of the {run}'s {name} queue"
        if name == "compute" and run == "body":
            words += "".join(f", layer {layer.name}" for layer in program.layers if index in layer.commands)
        return words

    def _write_arena(self, offset: int, data: bytes) -> None:
        self._transport.write_memory(self._transport.arena_base + offset, data)

    def _read(self, name: str) -> int:
        return self._transport.read_register(REGISTERS[name].address)

    def _write(self, name: str, value: int) -> None:
        self._transport.write_register(REGISTERS[name].address, value)
