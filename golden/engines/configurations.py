"""What a configuration says of its engines. Standard library only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .. import records
from ..fields import Field
from . import ENGINES
from .engine import C, Engine, EngineConfig


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
