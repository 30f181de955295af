"""Fast pointwise convolutions on the butterfly, with a window for each pixel."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterable
from functools import cached_property

import numpy as np

from ....golden.config import Config
from ....golden.engines import FPC
from ....golden.engines.fpc import SHIFT, FpcConfig, positions
from ....golden.engines.specification import REQUANTISE
from ....golden.memories import LocalMemory
from ....golden.numerics.butterfly import Pattern
from ....golden.numerics.fpc import PlacedFunction, place, stages_on
from ....golden.presets import PRESETS
from ....golden.timing.issue import result_groups
from ...graph import FastPointwiseConvolution
from ..network import CompileError, Network
from ..operation import Command, Constant, Job, Lowering, Operation
from ..storage import Storage
from .fields import Codes, Loop, Tiles, compute_fields, only_table, step_list, table_constants

# Checks whether a configuration can run a fast pointwise convolution, for the compiler and before training.


def check_pattern(pattern: Pattern, config: Config) -> None:
    """Make sure that a configuration has an engine with all stages, weights and skips of a pattern.

    Raises
    ------
    ValueError
        With what the configuration lacks, and a preset, or a part of a configuration, that would do.
    """
    if FPC not in config.engines:
        raise ValueError(missing_engines([FPC.name], config))
    try:
        stages_on(pattern, config.engines[FPC].pattern)
    except ValueError as error:
        raise ValueError(f"{error}; {_remedy(pattern)}") from error


def missing_engines(needed: Iterable[str], config: Config) -> str:
    """Return a message for a layer that needs one of these engines, none of which the configuration has."""
    have = ", ".join(engine.name for engine in config.engines)
    return f"engines must include {', or '.join(needed)} for this layer, not {have}; choose a --config that does"


def _remedy(pattern: Pattern) -> str:
    """Return the preset that runs a function of this pattern, or the part of a configuration that would."""
    for name, config in PRESETS.items():
        with contextlib.suppress(ValueError):
            if FPC in config.engines and stages_on(pattern, config.engines[FPC].pattern) is not None:
                return f"choose --config {name}"
    if pattern.direction is None:
        return "its distances must ascend (bottom-up) or descend (top-down): no configuration has another order"
    try:
        part = FpcConfig(pattern.width, pattern.direction, tuple(map(str, pattern.densities)), pattern.skips)
    except ValueError as error:
        return f"no configuration has that: {error}"
    return f'choose a --config with "FPC": {json.dumps(dataclasses.asdict(part))} among its engines'


class FastPointwiseOperation(Operation):
    """A fast pointwise convolution. There is one tile of all channels."""

    def __init__(self, network: Network, index: int, sources: tuple[Storage, ...], target: Storage):
        super().__init__(network, index, sources, target)
        self.tile_channels = self.output_channels
        self.pattern = self.layer.stages.pattern
        self.words = positions(self.pattern.stages, self.config.array.lanes)
        # Scales that are powers of two are shifts; a layer with a table needs the requantiser.
        shifts = self.layer.requantisation.shift is not None and self.layer.table is None
        self.epilogue = SHIFT if shifts and SHIFT.is_built(self.config) else REQUANTISE
        self.groups = result_groups(self.config, self.pattern.outputs, self.epilogue)
        self.fold = f"{min(self.pattern.inputs, self.config.array.lanes)} of {self.config.array.lanes} lanes"

    @cached_property
    def placed(self) -> PlacedFunction:
        """The weights in the words of the configuration's butterfly.

        Raises
        ------
        CompileError
            If the butterfly lacks stages, weights or skips of the layer.
        """
        try:
            check_pattern(self.pattern, self.config)
        except ValueError as error:
            raise CompileError(f"{self.layer.name}: {error}") from error
        return place(self.layer.stages, self.config.engines[FPC].pattern, self.config.array.lanes)

    @cached_property
    def constants(self) -> dict[LocalMemory, Constant]:
        """A weight word for each word of a pixel, parameters, a step list, and the table if there is one."""
        lanes, columns = self.config.array.lanes, self.config.array.columns
        used = self.placed.words
        words = np.zeros((self.words, columns, lanes), np.int8)
        words[:, : used.shape[1]] = used[:, :columns]
        own = self.config.engines[FPC]
        own_words = np.zeros((self.words, own.own_word_bytes(self.config.array) // lanes, lanes), np.int8)
        own_words[:, : own.own_columns(self.config.array)] = used[:, columns:]
        # Words without a channel count as zero, wherever they are read.
        starts = np.arange(self.words) * lanes
        return {
            LocalMemory.WEIGHT: Constant(words.tobytes(), (words.nbytes,)),
            **({FPC.memory: Constant(own_words.tobytes())} if own.own_columns(self.config.array) else {}),
            LocalMemory.PARAMETER: self._parameters(),
            LocalMemory.LIST: step_list(np.where(starts < self.pattern.inputs, starts, 0)),
            **table_constants(self.layer.table),
        }

    def _parameters(self) -> Constant:
        """Return a word for each group of results."""
        epilogue, words = self.layer.requantisation, np.zeros((self.groups, self.config.parameter_word_bytes), np.uint8)
        if self.epilogue.is_whole:
            biases = np.zeros((self.groups, self.config.array.lanes), "<i2")
            biases.reshape(-1)[: len(epilogue.bias)] = epilogue.bias
            words[:, : biases.nbytes // self.groups] = biases.view(np.uint8)
        else:
            words.reshape(-1)[: epilogue.parameters.nbytes] = epilogue.parameters.astype("<u8").view(np.uint8)
        return Constant(words.tobytes(), (words.nbytes,))

    def lower(self, job: Job) -> list[Command]:
        """Return one command, two of whose loops run over rows and columns."""
        layer, (source,), target = self.layer, job.sources, job.target
        epilogue = layer.requantisation
        reads = source.addresses(job.rows, job.columns, range(self.pattern.inputs))
        writes = target.addresses(job.rows, job.columns, range(self.pattern.outputs))
        fields = compute_fields(
            job,
            FPC,
            steps=self.words,
            source=int(reads[0]),
            destination=int(writes[0]),
            tiles=Tiles(self.pattern.outputs, self.pattern.outputs),
            windows=(
                Loop(len(job.rows), source.row_pitch, target.row_pitch),
                Loop(len(job.columns), source.pixel_pitch, target.pixel_pitch),
            ),
            codes=Codes(epilogue.zero_point, epilogue.low, epilogue.high, is_shared=False, table=only_table(job)),
            weight=job.addresses[LocalMemory.WEIGHT],
            own_weight=job.addresses.get(FPC.memory, 0),
            stages=self.pattern.stages,
            channels=self.pattern.inputs,
            input_zero_point=layer.zero_point,
            input_shift=layer.stages.input_shift,
            halves=self.placed.halves,
            skips=self.placed.skips,
            direct=int(self.epilogue is SHIFT),
            shift=epilogue.shift if self.epilogue is SHIFT else 0,
        )
        return [Command(fields, self.index, reads, writes)]

    def steps(self, rows: int, columns: int, tiles: range) -> int:
        """Return a step for each word of a pixel."""
        return rows * columns * len(tiles) * self.words

    def cycles(self, rows: int, columns: int, tiles: range) -> int:
        """Return the cycles: a word or a group of results each cycle, whichever takes longer."""
        return rows * columns * len(tiles) * max(self.words, self.groups)


LOWERING = Lowering({FastPointwiseConvolution: FastPointwiseOperation}, (FPC,), reads_border=False)
