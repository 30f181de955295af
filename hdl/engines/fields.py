"""Fields of single engines on their way: with each step, and with each group of results."""

from collections.abc import Iterable, Mapping

from amaranth.hdl import Const, Mux, Value
from amaranth.lib import data

from ...golden.config import Config
from ...golden.engines import SPECIFICATIONS, specification_of
from ...golden.engines.engine import Engine
from ..parts.isa import EngineCommand, field_shape

__all__ = ["finish_fields", "further_pitch", "further_results", "most_further", "step_fields", "take_fields"]


def step_fields(config: Config, codes: Iterable[int]) -> dict[str, data.StructLayout]:
    """The member ``fields`` of a step: by the names of engines what :attr:`.Issue.fields` of these engines name and the
    configuration has; no member where there is nothing."""
    wanted = {}
    for one in map(specification_of, codes):
        absent = config.engines[one.engine].absent_fields()
        wanted[one.engine] = [name for name in one.issue.fields if name not in absent]
    return _member(wanted)


def finish_fields(codes: Iterable[int]) -> dict[str, data.StructLayout]:
    """The member ``fields`` of a group of results: what the finishes of these engines name."""
    engines = map(specification_of, codes)
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


def most_further(config: Config) -> int:
    """How many a window has at most, of any engine."""
    return max(specification_of(code).issue.most_further(config) for code in config.engines)


def further_results(command: data.View, config: Config) -> Value:
    """How many a command asks for; 0 if its engine has none."""
    return _of_engine(command, config, lambda further: further.count)


def further_pitch(command: data.View, config: Config) -> Value:
    """How far apart they are, in bytes; of any value if there are none."""
    return _of_engine(command, config, lambda further: further.pitch)


def _of_engine(command: data.View, config: Config, name) -> Value:
    """The field of that name, of whichever engine a command is for."""
    value: Value = Const(0)
    for code in config.engines:
        further = specification_of(code).issue.further
        if further is not None and further.most(config):
            own = EngineCommand(command, code)[name(further)]
            value = Mux(command.engine == code, own, value)
    return value
