"""The driver: programs and inferences on one accelerator, over any transport, with every wait bounded."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...golden import registers
from ...golden.config import Config
from ...golden.isa import COMMAND_BYTES, Opcode
from ...golden.program.program import CoreProgram, Program, Queues
from ...golden.program.stages import Stage, stages
from ...golden.registers import core_name, error_fields, register_map
from ...golden.timing.latencies import reset_cycles
from ...golden.units import WITH_ADDRESS, ErrorCode, Queue, Unit, remedy
from . import ports
from .transport import Promise, StartedRun, Transport

# Errors of the driver.


class HardwareError(RuntimeError):
    """The device is not an accelerator of the expected version and configuration."""


class AcceleratorError(RuntimeError):
    """A run that stopped.

    Attributes
    ----------
    code : ErrorCode
        The error; ``NONE`` if the accelerator does not answer in time.
    unit : Unit
        The unit that stopped.
    index : int
        The command's index in its queue.
    address : int
        Address out of range, or external address of the failed burst; 0 where there is none.
    command : str
        A description of the command.
    core : int
        The core that stopped.
    """

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode,
        unit: Unit,
        index: int = 0,
        address: int = 0,
        command: str = "",
        core: int = 0,
    ):
        super().__init__(message)
        self.code = code
        self.unit = unit
        self.index = index
        self.address = address
        self.command = command
        self.core = core


# Control of the accelerator at a transport: its registers by name, its identity, starts and resets.

#: Counters of each core, at addresses that follow one another; with several cores, BARRIER_STALLED is one more.
COUNTERS = ("CYCLES", "DMA_BUSY", "DMA_STALLED", "COMPUTE_BUSY", "COMPUTE_STALLED", "DMA_DONE", "COMPUTE_DONE")

#: Polls of STATUS, each after twice the time that a soft reset takes, until it must have ended.
_RESET_POLLS = 10
#: A bound of the runs that their watchdog does not stop because they make slow progress.
_CYCLES_AT_LEAST, _TIMES_PREDICTED = 2_000_000, 100


def cycle_limit(program: Program) -> int:
    """Return the time-out, in cycles, of a run of this program."""
    return max(_CYCLES_AT_LEAST, _TIMES_PREDICTED * program.predicted_cycles)


@dataclass(frozen=True, slots=True)
class End:
    """What is posted for the end of a run.

    Attributes
    ----------
    status : promise of int
        The register STATUS.
    counters : list of promises of dict of str to int
        The performance counters of each core, by their names in lower case.
    """

    status: Promise[int]
    counters: list[Promise[dict[str, int]]]


class Control:
    """The registers of one accelerator.

    Callers hold ``transport.exclusive()``, but for :meth:`check_identity`.

    Parameters
    ----------
    transport : Transport
    config : Config
        The configuration that the hardware must have.
    """

    def __init__(self, transport: Transport, config: Config):
        self._transport = transport
        self._config = config
        self._registers = register_map(config.cores)

    def check_identity(self) -> None:
        """Raise HardwareError if ID, version or configuration hash differ."""
        for name, expected, advice in (
            ("ID", registers.ID, "check the register port's address"),
            ("VERSION", registers.VERSION, "use the release of lutterfly that the hardware was generated with"),
            ("CONFIG_HASH", self._config.hash, "name the configuration that the hardware was generated from"),
        ):
            with self._transport.exclusive():
                found = self.read(name)
            if found != expected:
                raise HardwareError(f"{name} must be {expected:#010x}, not {found:#010x}; {advice}")

    def set_up(self, cores: Sequence[Queues], watchdog_cycles: int) -> None:
        """Write the registers for a run of all cores, which ends with an interrupt."""
        settings = {"EXTERNAL_BASE": self._transport.arena_base}
        for number, queues in enumerate(cores):
            settings |= {core_name(f"{queue.name}_PROGRAM", number): queues[queue].address for queue in Queue}
            settings |= {core_name(f"{queue.name}_COMMANDS", number): len(queues[queue]) for queue in Queue}
        settings |= {"WATCHDOG": watchdog_cycles, "INTERRUPT_ENABLE": 1}
        # Only changed values are written, as a write makes the hardware fetch commands again that it still holds.
        state = self._transport.state
        for name, value in settings.items():
            if state.settings.get(name) != value:
                # The value is unknown if the write fails.
                state.settings.pop(name, None)
                self.post_write(name, value)
                state.settings[name] = value

    def start(self) -> None:
        """Start the run that is set up."""
        self.post_write("CONTROL", registers.CONTROL_START)

    def post_end(self, limit: int) -> End:
        """Post what a run ends with: a wait for its interrupt, which is cleared, and its status and counters."""
        self._transport.post_wait(limit)
        status = self.post_read("STATUS")
        self.post_write("INTERRUPT", 1)
        return End(status, [self._post_counters(core) for core in range(self._config.cores)])

    def _post_counters(self, core: int) -> Promise[dict[str, int]]:
        # With several cores, addresses without a register lie between these counters and the one of barriers.
        first, together = COUNTERS[0], len(COUNTERS)
        values = self._transport.post_read_registers(self._registers[core_name(first, core)].address, together)
        barrier = self.post_read("BARRIER_STALLED", core) if self._config.cores > 1 else None

        def counters() -> dict[str, int]:
            found = dict(zip(COUNTERS, values(), strict=True))
            if barrier is not None:
                found["BARRIER_STALLED"] = barrier()
            return {name.lower(): value for name, value in found.items()}

        return counters

    def reset(self) -> None:
        """Reset the core, and wait until the reset has ended.

        Raises
        ------
        AcceleratorError
            If the reset does not end.
        """
        state, cycles_per_poll = self._transport.state, 2 * reset_cycles(self._config)
        state.program, state.must_reset = None, True
        # A write that was posted before may have failed.
        state.settings.clear()
        self.write("CONTROL", registers.CONTROL_RESET)
        for _ in range(_RESET_POLLS):
            if not self.read("STATUS") & registers.STATUS_RESETTING:
                state.run, state.must_reset = None, False
                return
            self._transport.wait_for_interrupt(cycles_per_poll)
        raise AcceleratorError(
            f"a soft reset must end within {_RESET_POLLS * cycles_per_poll} cycles, and does not; "
            "reset the hardware as a whole",
            code=ErrorCode.NONE,
            unit=Unit.NONE,
        )

    def read(self, name: str, core: int = 0) -> int:
        """Return the value of a register, of the core's own if each core has one."""
        return self._transport.read_register(self._registers[core_name(name, core)].address)

    def write(self, name: str, value: int) -> None:
        """Write a register."""
        self._transport.write_register(self._registers[name].address, value)

    def post_read(self, name: str, core: int = 0) -> Promise[int]:
        """Post :meth:`read`."""
        return self._transport.post_read_register(self._registers[core_name(name, core)].address)

    def post_write(self, name: str, value: int) -> None:
        """Post :meth:`write`."""
        self._transport.post_write_register(self._registers[name].address, value)


# Reports of stopped runs: the error registers in words, with the command and a remedy.

#: The queue of each unit's commands.
_QUEUES = dict.fromkeys((Unit.DMA_QUEUE, Unit.LOAD, Unit.STORE, Unit.FILL, Unit.BARRIER), Queue.DMA) | dict.fromkeys(
    (Unit.COMPUTE_QUEUE, Unit.FETCH, Unit.WRITE_BACK), Queue.COMPUTE
)


def stopped(program: Program, cores: Sequence[Queues], core: int, word: int, address: int) -> AcceleratorError:
    """Return the error of the registers ERROR and ERROR_ADDRESS of a core.

    Parameters
    ----------
    program : Program
        The program that ran.
    cores : sequence of Queues
        The prologue or the body of each core.
    core : int
        The core that stopped first.
    word, address : int
        The values of the two registers.
    """
    found = error_fields(word)
    code, unit, index = ErrorCode(found["code"]), Unit(found["unit"]), found["index"]
    command = _describe(program.cores[core], cores[core], unit, index)
    where = f" at address {address:#x}" if code in WITH_ADDRESS else ""
    of_core = f" of core {core}" if len(cores) > 1 else ""
    return AcceleratorError(
        f"{code.name} in {unit.name}{of_core}{where}, {command}; {remedy(code, unit)}",
        code=code,
        unit=unit,
        index=index,
        address=address,
        command=command,
        core=core,
    )


def _describe(core: CoreProgram, queues: Queues, unit: Unit, index: int) -> str:
    """Describe the command, as far as its queue is known."""
    run = "body" if queues is core.body else "prologue"
    queue = _QUEUES.get(unit)
    if queue is None:
        return f"command {index} of the {run}"
    data = queues[queue].commands
    start = index * COMMAND_BYTES
    code = data[start] & 15 if start < len(data) else None
    opcode = Opcode(code).name if code in Opcode.__members__.values() else f"opcode {code}"
    words = f"command {index} ({opcode}) of the {run}'s {queue.title} queue"
    if queue is Queue.COMPUTE and run == "body":
        words += "".join(f", layer {layer.name}" for layer in core.layers if index in layer.commands)
    return words


_ERROR = ("ERROR", "ERROR_ADDRESS")


def check_config(program: Program, config: Config) -> None:
    """Raise ValueError if ``program`` was compiled for another configuration than ``config``, or for other cores."""
    if len(program.cores) != config.cores:
        raise ValueError(
            f"program must be for the {config.cores} cores of this hardware, not for {len(program.cores)}; "
            "compile the model again for this configuration"
        )
    if program.config_hash != config.hash:
        raise ValueError(
            f"program must be for the configuration of this hardware ({config.hash:#010x}), not for "
            f"{program.config_name} ({program.config_hash:#010x}); compile the model again for this one"
        )


class _Begun(threading.local):
    """The run that a thread has started."""

    run: StartedRun | None = None


class Driver:
    """Programs on one accelerator.

    Several drivers may share a transport, in several threads: each :meth:`infer` has the accelerator to itself, and
    loads its own program again if another driver's has replaced it. A run of :meth:`begin` is lost if another driver or
    thread uses the accelerator before :meth:`finish`; hold ``transport.exclusive()`` around both if there may be one.

    Parameters
    ----------
    transport : Transport
    config : Config
        The configuration that the hardware must have.
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
        self._stages: Sequence[Stage] = ()
        # Each thread has its own run, and cannot finish that of another thread.
        self._begun = _Begun()
        self._counters: list[dict[str, int]] = []
        self._control = Control(transport, config)
        self._control.check_identity()

    def load(self, program: Program) -> None:
        """Make ``program`` the current one: write it to external memory and run its prologue, unless it is there.

        Raises
        ------
        ValueError
            If the program is for another configuration, or needs a larger arena; nothing has changed then.
        AcceleratorError
            If the prologue does not end well.
        """
        check_config(program, self._config)
        staged = stages(program, self._transport.arena_bytes)
        with self._transport.exclusive():
            self._program, self._stages = program, staged
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
        (outputs,) = self.infer_all([inputs])
        return outputs

    def infer_all(self, inputs: Iterable[Sequence[np.ndarray]]) -> Generator[list[np.ndarray], None, None]:
        """Run inferences one after the other; the caller has the accelerator to itself until the iterator ends.

        The inputs of an inference are on the way while the one before it runs, if the transport can do that. Nothing
        else may use the accelerator in between; what the iterator gives last is of the counters' inference.

        Parameters
        ----------
        inputs : iterable of sequences of int8 or uint8 arrays
            For each inference as for :meth:`infer`, taken one ahead.

        Yields
        ------
        list of int8 or uint8 arrays
            For each inference as from :meth:`infer`.

        Raises
        ------
        TypeError, ValueError, AcceleratorError
            As :meth:`infer`.
        """
        finish: Promise[list[np.ndarray]] | None = None
        failure: Exception | None = None
        with self._transport.exclusive():
            try:
                for arrays in inputs:
                    images = self._images(arrays)
                    if finish is None:
                        self._prepare()
                    self._post_images(images)
                    outputs, finish = finish() if finish else None, None
                    try:
                        self._start([core.body for core in self._loaded().cores])
                        finish = self._post_finish()
                    except (RuntimeError, OSError) as error:
                        # What has been computed is not lost with it.
                        failure = error
                    if outputs is not None:
                        yield outputs
                    if failure is not None:
                        raise failure
                if finish:
                    last, finish = finish, None
                    yield last()
            finally:
                # Nobody takes the last one. If it does not end well, the next inference begins with a reset.
                if finish:
                    with contextlib.suppress(RuntimeError, OSError):
                        finish()

    def begin(self, inputs: Sequence[np.ndarray]) -> None:
        """Write the inputs and start the inference; :meth:`finish` must follow."""
        images = self._images(inputs)
        with self._transport.exclusive():
            self._prepare()
            self._post_images(images)
            self._start([core.body for core in self._loaded().cores])

    def finish(self) -> list[np.ndarray]:
        """Wait for the inference that :meth:`begin` started, and read its outputs.

        Raises
        ------
        RuntimeError
            If this thread has begun none, or another driver or thread has used the accelerator since.
        AcceleratorError
            If the run stops or does not end in time.
        """
        with self._transport.exclusive():
            return self._post_finish()()

    def _images(self, inputs: Sequence[np.ndarray]) -> dict[int, bytes]:
        """Return the bytes of the inputs in the arena, by address."""
        program = self._loaded()
        if len(inputs) != len(program.inputs):
            raise ValueError(f"inputs must be {len(program.inputs)} arrays, not {len(inputs)}")
        checked = [ports.check(port, array) for port, array in zip(program.inputs, inputs, strict=True)]
        found: dict[int, bytes] = {}
        for port, array in zip(program.inputs, checked, strict=True):
            found |= ports.to_images(port, array)
        return found

    def _post_images(self, images: Mapping[int, bytes]) -> None:
        for address, image in images.items():
            self._transport.post_write_memory(self._transport.arena_base + address, image)

    def _post_finish(self) -> Promise[list[np.ndarray]]:
        """Post the end of the inference that was begun; the result gives the outputs."""
        program, base = self._loaded(), self._transport.arena_base
        wait = self._post_wait()
        images = [
            [self._transport.post_read_memory(base + address, port.size_bytes) for address in port.addresses]
            for port in program.outputs
        ]

        def finish() -> list[np.ndarray]:
            wait()
            return [
                ports.from_images(port, [image() for image in of_port])
                for port, of_port in zip(program.outputs, images, strict=True)
            ]

        return finish

    def reset(self) -> None:
        """Reset the hardware from any state; the prologue runs again before the next inference.

        Raises
        ------
        AcceleratorError
            If the reset does not end, although it waits for nothing outside the core.
        """
        with self._transport.exclusive():
            self._control.reset()
            self._begun.run = None

    def counters(self) -> dict[str, int]:
        """The performance counters of this driver's last run, by the names of :data:`.driver.COUNTERS` in lower case.

        For several cores they are sums; ``cycles`` is that of the core that ended last.

        Raises
        ------
        RuntimeError
            If there was no run.
        """
        cores = self.core_counters()
        sums = {name: sum(core[name] for core in cores) for name in cores[0]}
        return sums | {"cycles": max(core["cycles"] for core in cores)}

    def core_counters(self) -> list[dict[str, int]]:
        """The performance counters of each core, by the same names; with several cores there is ``barrier_stalled``."""
        if not self._counters:
            raise RuntimeError("an inference must have ended; call infer")
        return [dict(core) for core in self._counters]

    def _loaded(self) -> Program:
        if self._program is None:
            raise RuntimeError("a program must be loaded first; call load")
        return self._program

    def _prepare(self) -> None:
        """Make the program resident and the hardware idle."""
        program, state = self._loaded(), self._transport.state
        if state.must_reset or state.run is not None:
            self.reset()
        # An equal program of another driver will do.
        if state.program is not None and state.program == program:
            return
        state.program = None
        # The whole program is written, also after a reset: a failed run may have written anything into external memory.
        for stage in self._stages:
            self._write_contents(stage.contents)
            self._start(stage.cores)
            self._wait()
        self._write_contents(program.contents())
        state.program = program

    def _write_contents(self, contents: Iterable[tuple[int, bytes]]) -> None:
        # Other commands may be at the addresses from which the hardware has fetched those that it holds.
        self._transport.state.settings.clear()
        for address, data in contents:
            self._write_arena(address, data)

    def _start(self, cores: Sequence[Queues]) -> None:
        # If what is posted fails later, the next inference begins with a reset.
        self._begun.run = self._transport.state.run = StartedRun(cores)
        self._control.set_up(cores, self._watchdog_cycles)
        self._control.start()

    def _wait(self) -> None:
        self._post_wait()()

    def _post_wait(self) -> Promise[None]:
        """Post the end of the run that was begun; the result checks it."""
        run, program, state = self._begun.run, self._loaded(), self._transport.state
        self._begun.run = None
        if run is None:
            raise RuntimeError("an inference must have begun; call begin")
        self._check_own(run)
        limit = cycle_limit(program)
        end = self._control.post_end(limit)

        def wait() -> None:
            self._check_own(run)
            status = end.status()
            self._counters = [counters() for counters in end.counters]
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
            core = self._control.read("ERROR_CORE") if len(run.cores) > 1 else 0
            raise stopped(program, run.cores, core, *(self._control.read(name, core) for name in _ERROR))

        return wait

    def _check_own(self, run: StartedRun) -> None:
        if self._transport.state.run is not run:
            raise RuntimeError(
                "an inference must have the accelerator until its end, and another driver or thread has used it since; "
                "hold the transport's exclusive() from begin to finish"
            )

    def _write_arena(self, offset: int, data: bytes) -> None:
        self._transport.write_memory(self._transport.arena_base + offset, data)
