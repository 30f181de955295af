"""The engines: the one table of what there are, what they compute, and what a configuration says of them.

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

#: What each engine computes, by its code.
SPECIFICATIONS: dict[int, EngineSpecification] = {one.SPECIFICATION.engine: one.SPECIFICATION for one in _MODULES}
#: By their codes.
ENGINES: dict[int, Engine[Any]] = {one.engine: one.engine for one in SPECIFICATIONS.values()}


def find_engine(code: int) -> Engine[Any]:
    """The engine with a code.

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
    """The memory with a code, of any configuration.

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
    """The format of a command; of COMPUTE with the fields of its engine, which does not matter to others."""
    return find_engine(engine).format if opcode is Opcode.COMPUTE else FORMATS[opcode]


def decode(command: bytes) -> CommandFields:
    """The fields of a command, those of its engine among them.

    Raises
    ------
    ValueError
        If there is no such opcode or engine.
    """
    opcode = Opcode(command[0] & (1 << OPCODE_BITS) - 1)
    return format_of(opcode, COMPUTE.read(command).engine).read(command)


class EngineConfigs(Mapping[Engine[Any], EngineConfig]):
    """The engines that a core is built with, in the order of their codes, and what each of them is built with.

    Parameters
    ----------
    configs : mapping of Engine to EngineConfig

    Raises
    ------
    TypeError
        If what an engine is given is not of its kind.
    """

    def __init__(self, configs: Mapping[Engine[Any], EngineConfig]):
        for engine, own in configs.items():
            if type(own) is not engine.configuration:
                raise TypeError(f"{engine.name} must be built with {engine.configuration.__name__}, not {own!r}")
        self._configs = {engine: configs[engine] for engine in sorted(configs)}

    @classmethod
    def of(cls, *engines: Engine[Any], **own: EngineConfig) -> EngineConfigs:
        """Some engines, built with what is given by their names, or with what they have by default.

        Raises
        ------
        ValueError
            If another engine is named.
        """
        for name in own.keys() - {engine.name for engine in engines}:
            raise ValueError(f"{name} must be one of the engines {', '.join(engine.name for engine in engines)}")
        return cls({engine: own.get(engine.name, engine.configuration()) for engine in engines})

    def having(self, engine: Engine[C], own: C) -> EngineConfigs:
        """These with one engine more, or built in another way."""
        return EngineConfigs({**self, engine: own})

    def fields(self, engine: Engine[Any]) -> tuple[Field, ...]:
        """The fields of an engine's own that its commands have, as it is built."""
        absent = self[engine].absent_fields()
        return tuple(field for field in engine.fields if field.name not in absent)

    def without(self, *engines: Engine[Any]) -> EngineConfigs:
        """These but for some."""
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
        """For JSON: engines by name."""
        return {engine.name: records.to_plain(own) for engine, own in self.items()}

    @classmethod
    def from_plain(cls, plain: Any, name: str) -> EngineConfigs:
        """Read what :meth:`to_plain` wrote; ``name`` is for messages.

        Raises
        ------
        ValueError
            If an engine is not known, or what it is built with is wrong.
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
    """What the engine with a code computes; ValueError if there is none."""
    return SPECIFICATIONS[find_engine(code)]
