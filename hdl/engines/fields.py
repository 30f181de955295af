"""Fields of single engines on their way: with each step, and with each group of results."""

from collections.abc import Iterable, Mapping

from amaranth.lib import data

from ...golden.engines.engine import Engine
from ...golden.engines.specifications import SPECIFICATIONS, specification
from ..parts.isa import EngineCommand, field_shape

__all__ = ["finish_fields", "step_fields", "take_fields"]


def step_fields(codes: Iterable[int]) -> dict[str, data.StructLayout]:
    """The member ``fields`` of a step: by the names of engines what :attr:`.Issue.fields` of these engines name; no
    member where there is nothing."""
    return _member({one.engine: one.issue.fields for one in map(specification, codes)})


def finish_fields(codes: Iterable[int]) -> dict[str, data.StructLayout]:
    """The member ``fields`` of a group of results: what the finishes of these engines name."""
    engines = map(specification, codes)
    return _member({one.engine: [name for finish in one.finishes for name in finish.fields] for one in engines})


def _member(wanted: Mapping[Engine, Iterable[str]]) -> dict[str, data.StructLayout]:
    layouts = {
        engine.name.lower(): data.StructLayout({name: field_shape(engine.format, name) for name in names})
        for engine, names in wanted.items()
        if names
    }
    return {"fields": data.StructLayout(layouts)} if layouts else {}


def take_fields(target: data.View, source: data.View) -> list:
    """Assign the ``fields`` of ``target``, if it has any; ``source`` is a command, or has ``fields`` as well."""
    members, given = (data.Layout.cast(view.shape()).members for view in (target, source))
    if "fields" not in members:
        return []
    engines = {one.name: one.engine for one in SPECIFICATIONS.values()}
    taken = []
    for name, layout in members["fields"].members.items():
        own = source.fields[name] if "fields" in given else EngineCommand(source, engines[name])
        taken += [target.fields[name][field].eq(own[field]) for field in layout.members]
    return taken
