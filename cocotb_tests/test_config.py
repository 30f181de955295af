"""The configuration: presets, JSON, hash, and the messages of its checks."""

from __future__ import annotations

import dataclasses
import json

import pytest

from lutterfly.golden.config import DEFAULT_PRESET, PRESETS, ArrayConfig, AxiConfig, Config, MemoryConfig
from lutterfly.golden.isa import Engine

ARRAY = {"lanes": 16, "columns": 8, "requant_lanes": 4, "depthwise_taps": 3}
MEMORY = {"feature_bytes": 65536, "weight_bytes": 262144, "parameter_bytes": 32768, "tables": 16, "list_entries": 1024}


@pytest.mark.parametrize("name", PRESETS)
def test_json_round_trip(name: str) -> None:
    config = PRESETS[name]
    again = Config.from_json(config.to_json())
    assert again == config
    assert again.hash == config.hash
    assert hash(again) == hash(config)


def test_presets_differ_in_their_hash() -> None:
    assert len({config.hash for config in PRESETS.values()}) == len(PRESETS)
    default = PRESETS[DEFAULT_PRESET]
    assert (default.array.lanes, default.array.columns, default.multipliers) == (16, 8, 128)
    assert dataclasses.replace(default, resident_commands=32).hash != default.hash


def test_hash_does_not_change_unnoticed() -> None:
    """Hardware that was built carries it: a change here makes every program and bitstream of before refused."""
    text = PRESETS["tiny"].to_json()
    assert json.loads(text)["engines"] == ["MAC", "MAXIMUM", "DEPTHWISE", "ADD"]
    assert text == json.dumps(json.loads(text), sort_keys=True)


def test_derived_sizes() -> None:
    config = PRESETS["ecp5-85k"]
    assert (config.weight_word_bytes, config.weight_words) == (128, 2048)
    assert (config.parameter_word_bytes, config.parameter_words) == (32, 1024)
    assert config.axi.data_bytes == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lanes": 12}, r"^lanes must be a power of two, not 12$"),
        ({"lanes": 0}, r"^lanes must be a power of two, not 0$"),
        ({"lanes": 128}, r"^lanes must be between 4 and 64, not 128$"),
        ({"columns": 32}, r"^columns must be at most lanes \(16\), not 32$"),
        ({"requant_lanes": 16}, r"^requant_lanes must be at most columns \(8\), not 16$"),
        ({"depthwise_taps": 9}, r"^depthwise_taps must be between 1 and columns \(8\), not 9$"),
        ({"depthwise_taps": 0}, r"^depthwise_taps must be between 1 and columns \(8\), not 0$"),
    ],
)
def test_bad_array(change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ArrayConfig(**ARRAY | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"feature_bytes": 65000}, r"^feature_bytes must be a power of two, not 65000$"),
        ({"feature_bytes": 1 << 25}, r"^feature_bytes must be at most 16777216, not 33554432$"),
        ({"weight_bytes": 1 << 25}, r"^weight_bytes must be at most 16777216, not 33554432$"),
        ({"tables": 512}, r"^tables must be at most 256, not 512$"),
        ({"list_entries": 8192}, r"^list_entries must be at most 4096, not 8192$"),
    ],
)
def test_bad_memory(change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MemoryConfig(**MEMORY | change)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"data_bits": 256}, r"^data_bits must be 32, 64 or 128, not 256$"),
        ({"data_bits": 64, "outstanding": 0}, r"^outstanding must be between 1 and 16, not 0$"),
        ({"data_bits": 64, "outstanding": 17}, r"^outstanding must be between 1 and 16, not 17$"),
    ],
)
def test_bad_axi(values: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AxiConfig(**values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"axi": AxiConfig(data_bits=128), "array": ArrayConfig(**ARRAY | {"lanes": 8})},
            r"^data_bits must be at most 8 \* lanes \(64\), not 128$",
        ),
        ({"memory": MemoryConfig(**MEMORY | {"feature_bytes": 32})}, r"^feature_bytes must be at least 64, not 32$"),
        (
            {"memory": MemoryConfig(**MEMORY | {"weight_bytes": 128})},
            r"^weight_bytes must be at least two words of 128 bytes, not 128$",
        ),
        ({"resident_commands": 48}, r"^resident_commands must be a power of two, at least 4, not 48$"),
        ({"resident_commands": 2}, r"^resident_commands must be a power of two, at least 4, not 2$"),
        ({"engines": (Engine.MAXIMUM,)}, r"^engines must be a tuple that contains Engine.MAC, not "),
    ],
)
def test_bad_config(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(PRESETS["ecp5-85k"], **change)


def _without(key: str) -> str:
    plain = json.loads(PRESETS["tiny"].to_json())
    del plain[key]
    return json.dumps(plain)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        _without("array"),
        _without("axi"),
        json.dumps(json.loads(PRESETS["tiny"].to_json()) | {"cores": 2}),
        json.dumps(json.loads(PRESETS["tiny"].to_json()) | {"engines": ["FOO"]}),
        json.dumps(json.loads(PRESETS["tiny"].to_json()) | {"axi": {"data_bits": 32, "burst": 3}}),
    ],
)
def test_text_that_is_no_configuration(text: str) -> None:
    with pytest.raises(ValueError, match=r"^configuration must be a JSON object with the fields of Config, but: "):
        Config.from_json(text)


def test_values_are_checked_in_json_too() -> None:
    with pytest.raises(ValueError, match=r"^lanes must be a power of two, not 5$"):
        Config.from_json(PRESETS["tiny"].to_json().replace('"lanes": 4', '"lanes": 5'))
