"""Gather the contents of a report: the layers with their cycles, the memories, the tables, as compiled and as run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...golden.config import Config
from ...golden.isa import TABLE_BYTES
from ...golden.memories import LocalMemory, constant_memories
from ...golden.program.outline import CoreOutline, LayerOutline
from ...golden.program.program import Program
from ...golden.units import Queue
from ..program import bus_bytes
from .observe import Observation, Occupant, Share, occupants, shares

#: Longer names are cut in the middle; the table of layers and tooltips have the whole name.
LABEL_CHARACTERS = 28


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """One layer of a report.

    Attributes
    ----------
    label : str
        Its number and its name, shortened: unique.
    planned : LayerOutline
        The compiler's numbers.
    share : Share
        The measured use of its cycles.
    """

    label: str
    planned: LayerOutline
    share: Share

    @property
    def macs_per_cycle(self) -> float:
        """The measured multiply-accumulates per cycle."""
        return self.planned.macs / self.share.cycles

    @property
    def busy_multipliers(self) -> float:
        """The measured average of busy multipliers."""
        return self.planned.multiplier_cycles / self.share.cycles


@dataclass(frozen=True, slots=True)
class Use:
    """Bytes of one memory: resident ones by their kind, and the size."""

    name: str
    parts: Mapping[str, int]
    capacity: int | None

    @property
    def used(self) -> int:
        """All used bytes."""
        return sum(self.parts.values())


@dataclass(frozen=True, slots=True)
class Table:
    """A transfer table, int8[256] indexed by the code plus 128, and the numbers of the layers that use it."""

    codes: np.ndarray
    layers: tuple[int, ...]
    is_streamed: bool


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a report shows of a core, see :func:`gather`."""

    name: str
    config_name: str
    config: Config
    program: Program
    observation: Observation
    layers: tuple[LayerFacts, ...]
    occupants: tuple[Occupant, ...]
    constants: tuple[Use, ...]
    external: Use
    tables: tuple[Table, ...]
    functions: int
    core: int = 0

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the core in an inference."""
        return sum(layer.planned.macs for layer in self.layers)

    @property
    def moved_bytes(self) -> int:
        """Bytes that its LOADs and STOREs move over the bus in an inference."""
        return sum(bus_bytes(ran.command.fields) for ran in self.observation.dma)

    @property
    def utilisation(self) -> float:
        """The share of all multipliers' cycles that the network's multiplications took."""
        taken = sum(layer.planned.multiplier_cycles for layer in self.layers)
        return taken / (self.observation.cycles * self.config.multipliers)


def gather(name: str, program: Program, config: Config, observation: Observation, *, core: int = 0) -> Facts:
    """Combine the compiler's decisions for a core with the observation of a run.

    Parameters
    ----------
    name : str
        Name of the model, for people.
    program : Program
    config : Config
    observation : Observation
        The observation of one inference.
    core : int
    """
    own = program.cores[core]
    divided = shares(observation, [layer.commands for layer in own.layers])
    layers = tuple(
        LayerFacts(_label(index, layer.name), layer, share)
        for index, (layer, share) in enumerate(zip(own.layers, divided, strict=True))
    )
    return Facts(
        name,
        program.config_name,
        config,
        program,
        observation,
        layers,
        tuple(occupants(own.outline, observation)),
        tuple(_use(own.outline, memory, config, layers) for memory in constant_memories(config)),
        _arena(program, config),
        tuple(_tables(own.outline)),
        program.outline.transfer_functions,
        core,
    )


def _label(index: int, name: str) -> str:
    if len(name) > LABEL_CHARACTERS:
        half = (LABEL_CHARACTERS - 1) // 2
        name = f"{name[:half]}…{name[-half:]}"
    return f"{index + 1} {name}"


def _use(outline: CoreOutline, memory: LocalMemory, config: Config, layers: tuple[LayerFacts, ...]) -> Use:
    parts: dict[str, int] = {}
    for block in outline.blocks_in(memory):
        if not block.is_streamed:
            users = ", ".join(layers[index].label for index in block.layers)
            parts[users] = parts.get(users, 0) + block.size_bytes
    size = config.size_bytes(memory)
    if outline.streamed_bytes(memory):
        parts["loaded in every inference"] = size - sum(parts.values())
    return Use(memory.title, parts, size)


def _arena(program: Program, config: Config) -> Use:
    """Return the contents of the arena: in external memory the whole program, on the chip what an inference needs."""
    on_chip = config.arena.on_chip_bytes
    runs = [queues for core in program.cores for queues in (core.body, *([] if on_chip else [core.prologue]))]
    parts = {"inputs": 0, "outputs": 0, "spilled tensors": 0}
    # A tensor that the host reads is often a spilled one, which is stored once.
    seen: set[int] = set()
    ports = ([(at, port) for port in ports for at in port.addresses] for ports in (program.inputs, program.outputs))
    spilled = [(tensor.address, tensor) for core in program.cores for tensor in core.spilled]
    for kind, tensors in zip(parts, (*ports, spilled), strict=True):
        for address, tensor in tensors:
            parts[kind] += 0 if address in seen else tensor.size_bytes
            seen.add(address)
    parts |= {
        "constants that stay on the chip": 0 if on_chip else len(program.constants),
        "constants for every inference": len(program.streamed),
        "commands": sum(len(queues[queue].commands) for queues in runs for queue in Queue),
    }
    parts["alignment"] = (program.body_bytes if on_chip else program.arena_bytes) - sum(parts.values())
    used = {name: size for name, size in parts.items() if size}
    return Use("arena on the chip", used, on_chip) if on_chip else Use("external memory", used, None)


def _tables(outline: CoreOutline) -> list[Table]:
    """Return every transfer table of the table memory; a concatenation has one for each input that needs it."""
    found = []
    for block in outline.blocks_in(LocalMemory.TABLE):
        images = np.frombuffer(block.tables, np.int8)
        found += [Table(codes, block.layers, block.is_streamed) for codes in images.reshape(-1, TABLE_BYTES)]
    return found
