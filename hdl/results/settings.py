"""What a command says of the codes of its results, which travels with each of their groups."""

from amaranth.hdl import unsigned
from amaranth.lib import data

from ...golden import isa
from ...golden.config import Config
from ..engines.fields import finish_fields, take_fields
from ..engines.finish import built_finishes, finish_flag, is_chosen
from ..parts.isa import field_shape

__all__ = ["settings_layout", "take_settings"]

_COMMON = ("zero_point", "low", "high", "table_enable", "table")


def settings_layout(config: Config) -> data.StructLayout:
    """What all commands say of requantisation and tables; which finish a command has chosen, a flag for each that has
    hardware of its own; and in ``fields`` what these want to know."""
    common = {name: field_shape(isa.COMPUTE, name) for name in _COMMON}
    flags = {finish_flag(engine, finish): unsigned(1) for engine, finish in built_finishes(config)}
    return data.StructLayout({**common, **flags, **finish_fields(config.engines)})


def take_settings(target: data.View, command: data.View, config: Config) -> list:
    """Assign the settings of a command."""
    return [
        *(target[name].eq(command[name]) for name in _COMMON),
        *(target[finish_flag(*built)].eq(is_chosen(command, *built)) for built in built_finishes(config)),
        *take_fields(target, command),
    ]
