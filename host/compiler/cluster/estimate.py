"""An estimate of the cycles of an inference for given splits of its layers among cores.

It need not be exact; it selects the splits, of many, that are worth a whole plan.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from ....golden.config import Config
from ....golden.memories import LocalMemory
from ....golden.timing.latencies import run_cycles, stored_run_cycles
from ....golden.timing.overheads import OVERHEADS
from ...graph import Tensor
from ..network import Network, Region
from ..operation import Operation
from ..plan import Executed
from .split import Parts, Split, part_of, parts_of

#: Cycles between two layers with an exchange, beside its transfers on the bus: latencies of a STORE, a barrier and a
#: LOAD, with their commands and tokens.
_MEETING = OVERHEADS.write_latency + OVERHEADS.read_latency + 60

#: Cycles of a run beside its beats; there is a run for each pixel where not all of its channels are moved.
_RUN = 6
#: The share of the feature memory that an input may fill beside blocks of an output.
_STAYS = 0.85
#: Factor from the beats of a core's transfers to their cycles, where it loads and stores alternately.
_TURNS = 1.3


class Estimate:
    """Estimates of one network on the cores of a configuration.

    Parameters
    ----------
    network : Network
        The whole network, with all layers.
    executed : Executed
        The same network as one core would execute it, without layers that copy nothing.

    Attributes
    ----------
    parts : callable
        Function of a layer's number and a split that returns the part of the layer's output that each core computes;
        None where the layer cannot have the split.
    """

    def __init__(self, network: Network, executed: Executed):
        self.graph, self.config = network.graph, network.config
        self.cores = range(self.config.cores)
        self.beat = self.config.axi.data_bytes
        # Results are cached, as many splits of the network have layers in common.
        self.parts: Callable[[int, Split], Parts | None] = functools.cache(self._parts)
        self._needed: Callable[[int, Split, int], list[Region]] = functools.cache(self._read)
        self._computing: Callable[[int, Split], int] = functools.cache(self._computed)
        operations = {operation.layer.output: operation for operation in executed.operations}
        self.operations = [operations.get(layer.output) for layer in self.graph.layers]
        self.units = [self._unit(operation) for operation in self.operations]
        self.weights = [
            len(operation.constants[LocalMemory.WEIGHT].image)
            if operation and LocalMemory.WEIGHT in operation.constants
            else 0
            for operation in self.operations
        ]

    def _unit(self, operation: Operation | None) -> int:
        """Return the channels of the output that are computed together; fewer would take as many cycles."""
        return operation.tile_channels if operation and operation.tiles > 1 else max(self.config.array.lanes, 8)

    def _parts(self, index: int, split: Split) -> Parts | None:
        """Return the part of a layer's output that each core computes, see :func:`.split.parts_of`."""
        return parts_of(self.graph, self.graph.layers[index], split, len(self.cores), self.units[index])

    def _read(self, index: int, split: Split, core: int) -> list[Region]:
        """Return the region of each input that a core's part of a layer reads; none where it has no part."""
        part = self.parts(index, split)[core]
        return part_of(self.graph, self.graph.layers[index], part)[1] if part else []

    def _computed(self, index: int, split: Split) -> int:
        """Return the array cycles of the core with the largest part of a layer."""
        operation, parts = self.operations[index], self.parts(index, split)
        if operation is None:
            return 0
        _, width, channels = self.graph.tensors[operation.layer.output].shape
        cycles = [0]
        for part in filter(None, parts):
            tiles = min(-(-len(part.channels) // self.units[index]), operation.tiles)
            whole = operation.cycles(len(part.rows), width, range(tiles))
            share = 1 if operation.tiles > 1 else len(part.channels) / channels
            cycles.append(math.ceil(whole * share))
        return max(cycles)

    def cycles(self, splits: Sequence[Split]) -> float:
        """Return the estimated cycles of an inference.

        Parameters
        ----------
        splits : sequence of Split
            A possible split for each layer.
        """
        layers = self.graph.layers
        own = {layer.output: self.parts(index, splits[index]) for index, layer in enumerate(layers)}
        reads: dict[str, list[Region | None]] = {}
        for index, layer in enumerate(layers):
            for core in self.cores:
                for name, region in zip(layer.inputs, self._needed(index, splits[index], core), strict=False):
                    of_cores = reads.setdefault(name, [None for _ in self.cores])
                    of_cores[core] = of_cores[core].join(region) if of_cores[core] else region
        spilled = self._spilled(splits, own)
        weights = [self._weights(splits, core) for core in self.cores]
        total = 0.0
        for index, layer in enumerate(layers):
            buses = [
                self._moving(index, splits[index], core, spilled, own, is_streamed=weights[core]) for core in self.cores
            ]
            shared = sum(buses) if self.config.cluster.sharing > 1 else 0.0
            total += max(self._computing(index, splits[index]), _TURNS * max(buses), shared)
            if layer.output in reads and layer.output not in spilled:
                total += self._exchange(self.graph.tensors[layer.output], own[layer.output], reads[layer.output])
            elif layer.output in spilled:
                total += _MEETING
        return total

    def _spilled(self, splits: Sequence[Split], own: dict[str, Parts]) -> set[str]:
        """Return the tensors that do not fit the feature memory of some core together with a layer's other tensors."""
        found: set[str] = set()
        for index, layer in enumerate(self.graph.layers):
            for core in self.cores:
                part = own[layer.output][core]
                if part is None:
                    continue
                needed = self._needed(index, splits[index], core)
                regions = [(layer.output, part), *zip(layer.inputs, needed, strict=True)]
                size = sum(self._bytes(name, region) for name, region in regions)
                if size > self.config.memory.feature_bytes:
                    found |= {name for name, _ in regions}
        return found

    def _weights(self, splits: Sequence[Split], core: int) -> bool:
        """Return whether a core's weights exceed its weight memory."""
        size = sum(self._weight_bytes(index, split, core) for index, split in enumerate(splits))
        return size > self.config.memory.weight_bytes

    def _weight_bytes(self, index: int, split: Split, core: int) -> int:
        part = self.parts(index, split)[core]
        channels = self.graph.tensors[self.graph.layers[index].output].shape[2]
        return math.ceil(self.weights[index] * len(part.channels) / channels) if part else 0

    def _moving(
        self, index: int, split: Split, core: int, spilled: set[str], own: dict[str, Parts], *, is_streamed: bool
    ) -> float:
        """Return the bus cycles of the external reads and writes of a core's part of a layer."""
        layer, memory = self.graph.layers[index], self.config.memory
        needed = dict(zip(layer.inputs, self._needed(index, split, core), strict=False))
        part = own[layer.output][core]
        if part is None:
            return 0.0
        loaded = {name: region for name, region in needed.items() if name in spilled or name in self.graph.inputs}
        reading = sum(self._loading(self.graph.tensors[name], region) for name, region in loaded.items())
        writing = 0.0
        if layer.output in spilled or layer.output in self.graph.outputs:
            writing = self._storing(self.graph.tensors[layer.output], part)
        weights = self._weight_bytes(index, split, core)
        if not is_streamed:
            return reading + writing
        # Either every part of the map loads the weights again, or every block of channels loads the map again, unless
        # the map is resident.
        size = sum(self._bytes(name, region) for name, region in needed.items())
        pieces = math.ceil(2 * (size + self._bytes(layer.output, part)) / memory.feature_bytes)
        blocks = math.ceil(8 * weights / memory.weight_bytes)
        again = 0.0
        if size > _STAYS * memory.feature_bytes:
            again = min((pieces - 1) * weights / self.beat, max(blocks - 1, 0) * reading)
        return reading + writing + weights / self.beat + again

    def _exchange(self, tensor: Tensor, own: Parts, reads: list[Region | None]) -> float:
        """Return the cycles in which no core computes because of the exchange of a tensor."""
        storing, loading = [0.0 for _ in self.cores], 0.0
        for giver in self.cores:
            given = [
                own[giver].meet(reads[taker]) for taker in self.cores if taker != giver and own[giver] and reads[taker]
            ]
            loading += sum(self._loading(tensor, region) for region in given if region)
            storing[giver] = sum(self._storing(tensor, region) for region in {*given} - {None})
        return _MEETING + max(storing) + loading if loading else 0.0

    def _loading(self, tensor: Tensor, region: Region) -> float:
        return self._transfer(tensor, region, run_cycles)

    def _storing(self, tensor: Tensor, region: Region) -> float:
        return self._transfer(tensor, region, stored_run_cycles)

    def _transfer(self, tensor: Tensor, region: Region, cycles_of_run: Callable[[Config, int], int]) -> float:
        """Return the bus cycles of a region: one stretch of bytes, or a run for each pixel."""
        pixels, size = len(region.rows) * tensor.shape[1], len(region.channels) * tensor.bits / 8
        if len(region.channels) == tensor.shape[2]:
            return pixels * size / self.beat
        return pixels * (cycles_of_run(self.config, math.ceil(size)) + _RUN)

    def _bytes(self, name: str, region: Region) -> int:
        tensor = self.graph.tensors[name]
        return math.ceil(len(region.rows) * tensor.shape[1] * len(region.channels) * tensor.bits / 8)
