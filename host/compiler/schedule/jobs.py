"""Jobs are the parts in which layers are executed; live ranges are the allocations in the feature memory for them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence

from ....golden.timing.overheads import OVERHEADS
from ..layout.borders import load_estimate
from ..layout.constants import split
from ..layout.cuts import Geometry, reached, row_groups
from ..network import Region
from ..operation import Job
from ..plan import Divided, Segmented
from ..storage import Incoming, LiveRange, Outgoing, Storage

# Rows that other cores wait for have priority, so that they are exchanged while the rest is computed.

#: Cycles of another job beside those of the array.
_JOB = 30
#: Cycles that an exchange saves, beside its beats, where the load is in parallel with the last job of a layer.
_SAVED = OVERHEADS.read_latency + 30


def rows_in_order(plan: Segmented, index: int) -> list[range]:
    """Return the rows of a layer's output in the order in which they are computed, in one job or several.

    There are several jobs if other cores read some rows, and computing these first costs less than it saves.
    """
    layer, operation = plan.graph.layers[index], plan.operations[index]
    name, up = layer.output, layer.window.up[0]
    height, width, _ = plan.graph.tensors[name].shape
    exchange, own = plan.exchange_of(name), plan.excerpt_of(name).region
    if exchange is None or not exchange.leaves:
        return [range(height)]
    # Rows with the same window stay together, as some of them may be needed earlier.
    found = {_widened(_within(region.rows, own.rows), up) for region in exchange.leaves}
    urgent = sorted(found, key=lambda rows: rows.start)
    edges = [0, *(edge for rows in urgent for edge in (rows.start, rows.stop)), height]
    rest = [range(start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True) if start < stop]
    pieces = [*urgent, *rest]
    # Rows for two cores may overlap, or may be all rows.
    if not rest or sum(map(len, pieces)) != height:
        return [range(height)]
    tiles = range(operation.tiles)
    cycles = sum(operation.cycles(len(rows), width, tiles) + _JOB for rows in pieces) - _JOB
    return pieces if cycles < operation.cycles(height, width, tiles) + _SAVED else [range(height)]


def _within(rows: range, own: range) -> range:
    return range(max(rows.start, own.start) - own.start, min(rows.stop, own.stop) - own.start)


def _widened(rows: range, up: int) -> range:
    """Return rows widened to multiples of ``up``."""
    return range(rows.start // up * up, -(-rows.stop // up) * up)


def plan_jobs(plan: Segmented) -> Divided:
    """Divide every layer into jobs; a layer whose tensors are all in the feature memory has one.

    A first layer that may begin before its whole input has arrived has one for each group of rows, if its constants are
    resident.
    """
    jobs, live_ranges = list[Job](), list[LiveRange]()
    for index in range(len(plan.graph.layers)):
        if index in plan.cuts:
            cut, parts = _cut_jobs(plan, index, len(jobs))
            jobs += cut
            live_ranges += parts
        else:
            jobs += _whole_jobs(plan, index)
    numbers: list[list[int]] = [[] for _ in plan.graph.layers]
    for number, job in enumerate(jobs):
        numbers[job.index].append(number)
    readers, writers = plan.readers, plan.writers
    leaving = {*map(plan.root, plan.graph.outputs), *plan.matrices}
    for name in plan.spans:
        own = readers.get(name, []), writers.get(name, [])
        live_ranges.append(_live_range(plan, name, *own, jobs, numbers, leaves=name in leaving))
    live_ranges.sort(key=lambda live_range: live_range.first)
    return Divided.of(plan, jobs=tuple(jobs), live_ranges=tuple(live_ranges))


def check_jobs(plan: Divided) -> None:
    """Check that live ranges of the same time do not overlap, and that they are the storages that jobs read and
    write."""
    present: list[LiveRange] = []
    for live_range in plan.live_ranges:
        present = [other for other in present if other.last >= live_range.first]
        for other in present:
            below, above = sorted((live_range.storage, other.storage), key=lambda storage: storage.address)
            assert below.address + below.size_bytes <= above.address, (live_range.tensor, other.tensor)
        present.append(live_range)
    limit = plan.config.memory.feature_bytes
    assert all(live_range.storage.address + live_range.storage.size_bytes <= limit for live_range in plan.live_ranges)


def _whole_jobs(plan: Segmented, index: int) -> list[Job]:
    layer = plan.graph.layers[index]
    height, width, _ = plan.graph.tensors[layer.output].shape
    # Each group of rows would load streamed weights again.
    is_streamed = any(segment.is_streamed for segments in plan.segments.values() for segment in segments.get(index, ()))
    sources = tuple(plan.storages[name] for name in layer.fetched)
    groups: tuple[int, ...] = (height,)
    if index == 0 and not is_streamed:
        loading = load_estimate(sources[0], plan.graph.tensors[layer.input], plan.config)
        _, groups = row_groups(plan, plan.operations[0], loading)
    pieces = [range(start, end) for start, end in itertools.pairwise(itertools.accumulate(groups, initial=0))]
    # All tiles of a group of rows are computed before the next group, as rows of the input still arrive.
    tile_inner = len(pieces) > 1
    if not is_streamed and not tile_inner:
        pieces = rows_in_order(plan, index)
    return [
        Job(index, sources, plan.storages[layer.output], rows, range(width), tiles, tile_inner=tile_inner)
        for rows in pieces
        for tiles in split(plan, index, range(plan.operations[index].tiles))
    ]


def _cut_jobs(plan: Segmented, index: int, first: int) -> tuple[list[Job], list[LiveRange]]:
    """Cut a layer whose tensors are not all whole: its jobs, numbered from ``first`` on, and the parts in buffers."""
    layer, (cut, buffers), partial = plan.graph.layers[index], plan.cuts[index], plan.partial(index)
    geometry = Geometry(plan, index, cut, partial)
    jobs, live_ranges = list[Job](), list[LiveRange]()
    #: The live range of the latest part of each tensor, and the buffers used so far.
    here, used = dict[str, int](), dict.fromkeys(partial, 0)

    def occupy(name: str, storage: Storage, *, arrives: bool) -> None:
        """Put a part into the next buffer."""
        job, address = first + len(jobs), buffers[name][used[name] % len(buffers[name])]
        placed = dataclasses.replace(storage, address=address)
        arrivals = (Incoming(job, placed, storage.rows),) if arrives else ()
        here[name], used[name] = len(live_ranges), used[name] + 1
        live_ranges.append(LiveRange(name, placed, job, job, job, arrivals))

    for tiles, rows, columns in itertools.product(geometry.tiles, geometry.rows, geometry.columns):
        sources, target = geometry.storages_of(rows, columns, tiles)
        for name, storage in dict(zip(layer.fetched, sources, strict=True)).items():
            if name in partial and not (name in here and _same_place(live_ranges[here[name]].storage, storage)):
                occupy(name, storage, arrives=True)
        if layer.output in partial:
            occupy(layer.output, target, arrives=False)
            target = live_ranges[here[layer.output]].storage
        sources = tuple(
            live_ranges[here[name]].storage if name in partial else plan.storages[name] for name in layer.fetched
        )
        jobs.extend(Job(index, sources, target, rows, columns, piece) for piece in split(plan, index, tiles))
        last = first + len(jobs) - 1
        for name, number in here.items():
            departures = (Outgoing(last, target),) if name == layer.output else ()
            live_ranges[number] = dataclasses.replace(live_ranges[number], last=last, departures=departures)
    return jobs, live_ranges


def _same_place(one: Storage, other: Storage) -> bool:
    return dataclasses.replace(one, address=0) == dataclasses.replace(other, address=0)


def _live_range(
    plan: Segmented,
    name: str,
    readers: list[int],
    writers: list[int],
    jobs: Sequence[Job],
    numbers: list[list[int]],
    *,
    leaves: bool,
) -> LiveRange:
    """Make the live range of a tensor that is whole in the feature memory for some layers.

    Parameters
    ----------
    plan : Segmented
    name : str
        Name of the tensor.
    readers, writers : list of int
        The layers that read and write it.
    jobs : sequence of Job
    numbers : list of list of int
        The numbers of each layer's jobs.
    leaves : bool
        Whether external memory has to hold all of it at the end.
    """
    storage, (born, end) = plan.storages[name], plan.spans[name]
    near = [index for index in readers if index <= end]
    last = -1 if end < 0 else numbers[end][-1] if end < len(numbers) else len(jobs)
    if born >= 0:
        arrivals = [*_exchanged(plan, name, near, numbers)]
    elif near:
        arrivals = _arrivals(plan, name, jobs, numbers[near[0]])
    else:
        arrivals = [Incoming(len(jobs), storage, storage.rows)]
    # An input, which no layer writes, lies in external memory already.
    is_whole = leaves or any(index > end for index in readers)
    departures = _departing(plan, name, writers, jobs, numbers, is_whole=is_whole) if writers else ()
    return LiveRange(
        name,
        storage,
        first=-1 if born < 0 else numbers[born][0],
        last=last,
        border=numbers[near[0]][0] if near else len(jobs),
        arrivals=tuple(arrivals),
        departures=tuple(departures),
    )


def _departing(
    plan: Segmented, name: str, writers: list[int], jobs: Sequence[Job], numbers: list[list[int]], *, is_whole: bool
) -> Iterator[Outgoing]:
    """Yield the stores of a tensor: all that is computed of it, if the network needs it whole; else what other cores
    read."""
    written = [plan.region_of(plan.graph.layers[index].output) for index in writers]
    exchange, region = plan.exchange_of(name), plan.excerpt_of(name).region
    if is_whole:
        regions = [functools.reduce(Region.join, written)]
    else:
        regions = [leaving.within(region) for leaving in exchange.leaves] if exchange else []
    for leaving in regions:
        last = max(
            number
            for index, own in zip(writers, written, strict=True)
            for number in numbers[index]
            # Where rows of an input still arrive, no barrier may come between their LOADs.
            if index in plan.cuts or jobs[number].tile_inner or leaving.meet(_written(plan, jobs[number], own))
        )
        yield Outgoing(last, plan.storages[name].part(leaving.rows, leaving.channels))


def _written(plan: Segmented, job: Job, own: Region) -> Region:
    """Return the part of a layer's region that a job writes."""
    rows = plan.place_of(plan.graph.layers[job.index].output).phase.rows(job.rows)
    return Region(range(rows.start, rows[-1] + 1), own.channels)


def _exchanged(plan: Segmented, name: str, readers: list[int], numbers: list[list[int]]) -> Iterator[Incoming]:
    """Yield loads of the regions of a whole tensor that other cores compute and ``readers`` read."""
    for region in plan.arriving(name):
        first = next((index for index in readers if _reads(plan, index, name, region)), None)
        if first is not None:
            part = plan.storages[name].part(region.rows, region.channels)
            yield Incoming(numbers[first][0], part, part.rows)


def _reads(plan: Segmented, index: int, name: str, region: Region) -> bool:
    """Return whether a layer reads a part of a region."""
    sources = (source for source in plan.graph.layers[index].fetched if plan.root(source) == name)
    return any(plan.region_of(source).meet(region) for source in sources)


def _arrivals(plan: Segmented, name: str, jobs: Sequence[Job], readers: list[int]) -> list[Incoming]:
    """Return loads of an input's stored rows, each for the first of the jobs ``readers`` that reads them."""
    storage, here = plan.storages[name], 0
    arrivals: list[Incoming] = []
    for number in readers:
        job = jobs[number]
        layer = plan.graph.layers[job.index]
        needed = max(
            plan.place_of(source).row + reached(layer.window_of(place), storage, job.rows, job.columns)[0].stop
            for place, source in enumerate(layer.fetched)
            if plan.root(source) == name
        )
        end = storage.height if number == readers[-1] else min(needed, storage.height)
        if end > here:
            arrivals.append(Incoming(number, storage, range(here, end)))
            here = end
    return arrivals
