"""The table of all engines with their specifications, and the engines of a configuration.

See ``docs/adding-an-engine.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .. import records
from ..isa import COMPUTE, FORMATS, OPCODE_BITS, CommandFields, Field, Format, Opcode
from ..memories import SHARED_MEMORIES, LocalMemory
from . import add, binary_maximum, depthwise, fpc, mac, maximum, multiply, winograd, xnor
from .add import ADD
from .binary_maximum import BINARY_MAXIMUM
from .depthwise import DEPTHWISE
from .engine import C, Engine, EngineConfig
from .fpc import FPC
from .mac import MAC
from .maximum import MAXIMUM
from .multiply import MULTIPLY
from .specification import EngineSpecification
from .winograd import WINOGRAD
from .xnor import XNOR

__all__ = [
    "ADD",
    "BINARY_MAXIMUM",
    "DEPTHWISE",
    "ENGINES",
    "FPC",
    "MAC",
    "MAXIMUM",
    "MULTIPLY",
    "SPECIFICATIONS",
    "WINOGRAD",
    "XNOR",
    "EngineConfigs",
    "decode",
    "find_engine",
    "find_memory",
    "format_of",
    "specification_of",
]

#: An engine is one line here, and one in ``hdl/engines/__init__.py``, or in ``hdl/engines/stages.py``.
_MODULES = (mac, maximum, depthwise, xnor, fpc, add, binary_maximum, multiply, winograd)

#: The specification of each engine, by its code.
SPECIFICATIONS: dict[int, EngineSpecification] = {one.SPECIFICATION.engine: one.SPECIFICATION for one in _MODULES}
#: All engines, by their codes.
ENGINES: dict[int, Engine[Any]] = {one.engine: one.engine for one in SPECIFICATIONS.values()}


def find_engine(code: int) -> Engine[Any]:
    """Return the engine with a code.

    Raises
    ------
    ValueError
        If there is none.
    """
    if code not in ENGINES:
        known = ", ".join(f"{int(engine)} ({engine.name})" for engine in ENGINES.values())
        raise ValueError(f"engine must be one of {known}, not {code}")
    return ENGINES[code]


def find_memory(code: int) -> LocalMemory:
    """Return the memory with a code, of any configuration.

    Raises
    ------
    ValueError
        If there is none.
    """
    own = [engine.memory for engine in ENGINES.values() if engine.memory is not None]
    known: dict[int, LocalMemory] = {memory: memory for memory in (*SHARED_MEMORIES, *own)}
    if code not in known:
        codes = ", ".join(f"{int(memory)} ({memory.name})" for memory in known.values())
        raise ValueError(f"memory must be one of {codes}, not {code}")
    return known[code]


def format_of(opcode: Opcode, engine: int) -> Format[CommandFields]:
    """Return the format of a command; that of COMPUTE has the fields of ``engine``, which other commands ignore."""
    return find_engine(engine).format if opcode is Opcode.COMPUTE else FORMATS[opcode]


def decode(command: bytes) -> CommandFields:
    """Return the fields of a command, including those of its engine.

    Raises
    ------
    ValueError
        If there is no such opcode or engine.
    """
    opcode = Opcode(command[0] & (1 << OPCODE_BITS) - 1)
    return format_of(opcode, COMPUTE.read(command).engine).read(command)


class EngineConfigs(Mapping[Engine[Any], EngineConfig]):
    """The engines of a core, in the order of their codes, each with its configuration.

    Parameters
    ----------
    configs : mapping of Engine to EngineConfig

    Raises
    ------
    TypeError
        If the configuration of an engine has the wrong type.
    """

    def __init__(self, configs: Mapping[Engine[Any], EngineConfig]):
        for engine, own in configs.items():
            if type(own) is not engine.configuration:
                raise TypeError(f"{engine.name} must be built with {engine.configuration.__name__}, not {own!r}")
        self._configs = {engine: configs[engine] for engine in sorted(configs)}

    @classmethod
    def of(cls, *engines: Engine[Any], **own: EngineConfig) -> EngineConfigs:
        """Return these engines, with the configurations that are given by their names, or the default ones.

        Raises
        ------
        ValueError
            If another engine is named.
        """
        for name in own.keys() - {engine.name for engine in engines}:
            raise ValueError(f"{name} must be one of the engines {', '.join(engine.name for engine in engines)}")
        return cls({engine: own.get(engine.name, engine.configuration()) for engine in engines})

    def having(self, engine: Engine[C], own: C) -> EngineConfigs:
        """Return a copy with another engine, or with another configuration of an engine."""
        return EngineConfigs({**self, engine: own})

    def fields(self, engine: Engine[Any]) -> tuple[Field, ...]:
        """Return the fields of an engine's own that its commands have in this configuration."""
        absent = self[engine].absent_fields()
        return tuple(field for field in engine.fields if field.name not in absent)

    def without(self, *engines: Engine[Any]) -> EngineConfigs:
        """Return a copy without some engines."""
        return EngineConfigs({engine: own for engine, own in self.items() if engine not in engines})

    def __getitem__(self, engine: Engine[C]) -> C:
        return self._configs[engine]  # type: ignore[return-value]

    def __iter__(self) -> Iterator[Engine[Any]]:
        return iter(self._configs)

    def __len__(self) -> int:
        return len(self._configs)

    def __hash__(self) -> int:
        return hash(tuple(self._configs.items()))

    def __repr__(self) -> str:
        return f"EngineConfigs({self._configs!r})"

    def to_plain(self) -> dict[str, Any]:
        """Return the engines by name, as data for JSON."""
        return {engine.name: records.to_plain(own) for engine, own in self.items()}

    @classmethod
    def from_plain(cls, plain: Any, name: str) -> EngineConfigs:
        """Read what :meth:`to_plain` wrote; ``name`` is for messages.

        Raises
        ------
        ValueError
            If an engine is not known, or its configuration is wrong.
        """
        known = {engine.name: engine for engine in ENGINES.values()}
        if not isinstance(plain, dict):
            raise records.wrong(name, f"an object with engines of {', '.join(known)}", plain)
        for key in plain:
            if key not in known:
                raise ValueError(f"{name} must have no engines but {', '.join(known)}, and has {records.brief(key)}")
        return cls(
            {known[key]: records.read(known[key].configuration, own, f"{name}.{key}") for key, own in plain.items()}
        )


def specification_of(code: int) -> EngineSpecification:
    """Return the specification of the engine with a code; raise ValueError if there is none."""
    return SPECIFICATIONS[find_engine(code)]
