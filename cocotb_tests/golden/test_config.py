"""The configuration: presets, JSON, hash, and the messages of its checks."""

from __future__ import annotations

import dataclasses
import functools
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ArenaConfig, ArrayConfig, AxiConfig, ClusterConfig, MemoryConfig
from lutterfly.golden.engines import ADD, DEPTHWISE, ENGINES, FPC, MAC, MAXIMUM, EngineConfigs
from lutterfly.golden.engines.add import AddConfig
from lutterfly.golden.engines.depthwise import DepthwiseConfig
from lutterfly.golden.engines.engine import EngineConfig
from lutterfly.golden.engines.fpc import FpcConfig
from lutterfly.golden.presets import DEFAULT_PRESET, PRESETS

ARRAY = {"lanes": 16, "columns": 8, "requant_lanes": 4}
MEMORY = {"feature_bytes": 65536, "weight_bytes": 262144, "parameter_bytes": 32768, "tables": 16, "list_entries": 1024}
FIELDS = "array, memory, axi, engines, resident_commands, cluster, arena, hands_over"

ENGINE_NAMES = ", ".join(engine.name for engine in ENGINES.values())


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
    engines = {
        "MAC": {},
        "MAXIMUM": {},
        "DEPTHWISE": {"taps": 2},
        "XNOR": {},
        "ADD": {"tables": 2},
        "BINARY_MAXIMUM": {},
        "MULTIPLY": {},
    }
    assert json.loads(text)["engines"] == engines
    assert text == json.dumps(json.loads(text), sort_keys=True)
    # What says how many cores there are is left out where there is one, the arena where it is not on the chip, and that
    # engines hand over where they do not.
    left_out = {"cluster", "arena", "hands_over"}
    assert set(json.loads(text)) == {field.name for field in dataclasses.fields(Config)} - left_out
    over = dataclasses.replace(PRESETS["tiny"], hands_over=True)
    assert set(json.loads(over.to_json())) - set(json.loads(text)) == {"hands_over"}
    assert Config.from_json(over.to_json()) == over
    assert set(json.loads(PRESETS["ecp5-25k-on-chip"].to_json())) - set(json.loads(text)) == {"arena"}
    assert {name: config.hash for name, config in PRESETS.items()} == {
        "tiny": 3999153625,
        "ecp5-85k": 2663048543,
        "gw5a-138": 320657572,
        "large": 1424373927,
        "ecp5-85k-on-chip": 3987355154,
        "ecp5-85k-sdram": 1752059947,
        "ecp5-45k-on-chip": 2448217671,
        "ecp5-25k-on-chip": 2117066915,
        "ecp5-45k-sdram": 2388646980,
        "ecp5-25k-sdram": 2590097470,
        "gw5a-138-on-chip": 1259616881,
    }


def test_derived_sizes() -> None:
    config = PRESETS["ecp5-85k"]
    assert (config.weight_word_bytes, config.weight_words) == (128, 2048)
    assert (config.parameter_word_bytes, config.parameter_words) == (64, 512)
    assert config.axi.data_bytes == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lanes": 12}, r"^lanes must be a power of two, not 12$"),
        ({"lanes": 0}, r"^lanes must be a power of two, not 0$"),
        ({"lanes": 128}, r"^lanes must be between 4 and 64, not 128$"),
        ({"columns": 32}, r"^columns must be at most lanes \(16\), not 32$"),
        ({"requant_lanes": 16}, r"^requant_lanes must be at most columns \(8\), not 16$"),
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


@pytest.mark.parametrize("size", [-4096, 2048, 12288, 1 << 25])
def test_bad_arena(size: int) -> None:
    message = rf"^on_chip_bytes must be 0, or a power of two between 4096 and 16777216, not {size}$"
    with pytest.raises(ValueError, match=message):
        ArenaConfig(size)


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
        ({"resident_commands": 48}, r"^resident_commands must be a power of two between 4 and 65536, not 48$"),
        ({"resident_commands": 2}, r"^resident_commands must be a power of two between 4 and 65536, not 2$"),
        ({"resident_commands": 1 << 17}, r"^resident_commands must be a power of two between 4 and 65536, not 131072$"),
        ({"engines": EngineConfigs.of(MAXIMUM)}, r"^engines must be some with MAC among them, not MAXIMUM$"),
        (
            {"cluster": ClusterConfig(2, shared_port=False), "arena": ArenaConfig(4096)},
            r"^on_chip_bytes must be 0 with 2 AXI4 ports, not 4096$",
        ),
        ({"engines": EngineConfigs.of()}, r"^engines must be some with MAC among them, not none$"),
        (
            {"engines": EngineConfigs.of(MAC, DEPTHWISE, DEPTHWISE=DepthwiseConfig(9))},
            r"^DEPTHWISE.taps must be at most columns \(8\), not 9$",
        ),
        (
            {"engines": EngineConfigs.of(MAC, DEPTHWISE, DEPTHWISE=DepthwiseConfig(3, chains=3))},
            r"^DEPTHWISE.chains must be at most columns / taps \(2\), not 3$",
        ),
    ],
)
def test_bad_config(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(PRESETS["ecp5-85k"], **change)


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        (DepthwiseConfig, 0, r"^taps must be at least 1, not 0$"),
        (functools.partial(DepthwiseConfig, 1), 0, r"^chains must be between 1 and 6, not 0$"),
        (functools.partial(DepthwiseConfig, 1), 7, r"^chains must be between 1 and 6, not 7$"),
        (AddConfig, 3, r"^tables must be a power of two, not 3$"),
        (AddConfig, 32, r"^tables must be at most 16, not 32$"),
        (FpcConfig, 12, r"^width must be a power of two, not 12$"),
        (FpcConfig, 1, r"^width must be between 2 and 256, not 1$"),
        (FpcConfig, 512, r"^width must be between 2 and 256, not 512$"),
    ],
)
def test_bad_parameters_of_engines(part: type, value: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        part(value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"own_words": 48}, r"^own_words must be a power of two, not 48$"),
        ({"own_words": 512}, r"^own_words must be at most 256, not 512$"),
        ({"skips": ((0, 1),) * 5}, r"^skips must be at most 4, not 5$"),
        ({"skips": ((2, 1),)}, r"^skips must be \(i, j\) with 0 <= i <= j <= 2, not \(2, 1\)$"),
        ({"direction": "sideways"}, r"^direction must be 'bottom-up' or 'top-down', not 'sideways'$"),
        ({"densities": ("full",)}, r"^densities must be 3, one for each stage of 8 values, not 1$"),
    ],
)
def test_bad_butterflies(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FpcConfig(8, **changes)


def test_parameters_of_an_engine_bind_where_it_is_built() -> None:
    tiny = PRESETS["tiny"]
    with pytest.raises(ValueError, match=r"^DEPTHWISE.taps must be at most columns \(2\), not 3$"):
        dataclasses.replace(tiny, engines=tiny.engines.having(DEPTHWISE, DepthwiseConfig(3)))
    assert DEPTHWISE not in dataclasses.replace(tiny, engines=tiny.engines.without(DEPTHWISE)).engines


def test_an_engine_that_is_absent_leaves_no_trace() -> None:
    """Neither in the text nor in the hash, whatever it would be built with."""
    config = PRESETS["ecp5-85k"]
    without_it = dataclasses.replace(config, engines=config.engines.without(FPC))
    assert "FPC" not in without_it.to_json()
    narrower = dataclasses.replace(config, engines=config.engines.having(FPC, FpcConfig(128)))
    assert narrower.hash != config.hash
    assert dataclasses.replace(narrower, engines=narrower.engines.without(FPC)) == without_it


def test_engines_are_built_with_what_is_theirs() -> None:
    with pytest.raises(TypeError, match=r"^ADD must be built with AddConfig, not DepthwiseConfig\(taps=3, chains=1\)$"):
        EngineConfigs({MAC: EngineConfig(), ADD: DepthwiseConfig()})
    with pytest.raises(ValueError, match=r"^FPC must be one of the engines MAC, ADD$"):
        EngineConfigs.of(MAC, ADD, FPC=FpcConfig(8))
    engines = EngineConfigs.of(ADD, MAC, ADD=AddConfig(4))
    assert [*engines] == [MAC, ADD]
    assert engines[ADD].tables == 4


@pytest.mark.parametrize("part", [ArrayConfig, MemoryConfig, AxiConfig, DepthwiseConfig, AddConfig, FpcConfig, Config])
@pytest.mark.parametrize("value", [True, 4.0, "4", None, [4]])
def test_integers_are_integers(part: type, value: object) -> None:
    """To Python, True is 1 and 4.0 == 4: both would be other configurations, with other hashes, that look the same."""
    config = PRESETS["tiny"]
    parts = (config, config.array, config.memory, config.axi, DepthwiseConfig(), AddConfig(), FpcConfig())
    (known,) = (value for value in parts if type(value) is part)
    names = [field.name for field in dataclasses.fields(part) if type(getattr(known, field.name)) is int]
    assert names
    for name in names:
        with pytest.raises(TypeError, match=rf"^{name} must be an integer, not {re.escape(repr(value))}$"):
            dataclasses.replace(known, **{name: value})


@pytest.mark.parametrize("value", [1, 0, "true", None])
def test_a_flag_is_true_or_false(value: object) -> None:
    with pytest.raises(TypeError, match=rf"^hands_over must be true or false, not {value!r}$"):
        dataclasses.replace(PRESETS["tiny"], hands_over=value)


@pytest.mark.parametrize(
    ("name", "last", "first", "constraint"),
    [
        ("feature_bytes", 16, 8, "at least 16"),
        ("feature_bytes", 1 << 24, 1 << 25, "at most 16777216"),
        ("weight_bytes", 16, 8, "at least two words of 8 bytes"),
        # 20 bits of a command count words of 8 bytes.
        ("weight_bytes", 1 << 23, 1 << 24, "at most 1048576 words of 8 bytes"),
        ("parameter_bytes", 8, 4, "between 1 and 65536 words of 8 bytes"),
        ("parameter_bytes", 1 << 19, 1 << 20, "between 1 and 65536 words of 8 bytes"),
        ("parameter_bytes", 1 << 19, 1 << 40, "at most 16777216"),
        ("tables", 256, 512, "at most 256"),
        ("list_entries", 4096, 8192, "at most 4096"),
    ],
)
def test_limits_of_memories(name: str, last: int, first: int, constraint: str) -> None:
    def config(size: int) -> Config:
        tiny = PRESETS["tiny"]
        return dataclasses.replace(tiny, memory=dataclasses.replace(tiny.memory, **{name: size}))

    assert getattr(config(last).memory, name) == last
    with pytest.raises(ValueError, match=f"^{name} must be {constraint}, not {first}$"):
        config(first)


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"cores": 3}, "cores must be 1, 2, 4 or 8, not 3"),
        ({"cores": 16}, "cores must be 1, 2, 4 or 8, not 16"),
        ({"cores": 1, "shared_port": False}, "shared_port must be true for one core, not false"),
    ],
)
def test_refuses_clusters(cluster: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        ClusterConfig(**cluster)


def test_cores_make_another_configuration() -> None:
    tiny = PRESETS["tiny"]
    found = [
        dataclasses.replace(tiny, cluster=ClusterConfig(cores, shared)) for cores in (2, 4) for shared in (True, False)
    ]
    assert len({config.hash for config in (tiny, *found)}) == 5
    assert [config.cluster.ports for config in found] == [1, 2, 1, 4]
    assert [config.cluster.core_bits for config in found] == [1, 1, 2, 2]
    for config in found:
        assert Config.from_json(config.to_json()) == config


def changed(*path: str, value: object, cores: int = 1) -> str:
    """The text of `tiny` with so many cores and another value in one place."""
    plain = json.loads(dataclasses.replace(PRESETS["tiny"], cluster=ClusterConfig(cores=cores)).to_json())
    place = plain
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(plain)


def without(*path: str) -> str:
    plain = json.loads(PRESETS["tiny"].to_json())
    place = plain
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    return json.dumps(plain)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value: line 1 column 1 (char 0)"),
        ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        (
            "[]",
            f"configuration must be an object with the fields {FIELDS}, not an array",
        ),
        (
            "3",
            f"configuration must be an object with the fields {FIELDS}, not 3",
        ),
        ("[" * 100_000, "JSON must not be nested so deeply"),
        ('{"axi":' * 100_000, "JSON must not be nested so deeply"),
        (without("array"), "configuration.array must be given, and is missing"),
        (without("axi", "data_bits"), "configuration.axi.data_bits must be given, and is missing"),
        (
            changed("cores", value=2),
            f'configuration must have no fields but {FIELDS}, and has "cores"',
        ),
        (
            changed("axi", "burst", value=3),
            'configuration.axi must have no fields but data_bits, outstanding, and has "burst"',
        ),
        (
            changed("axi", value=None),
            ("configuration.axi must be an object with the fields data_bits, outstanding, not null"),
        ),
        (
            changed("engines", value="MAC"),
            f'configuration.engines must be an object with engines of {ENGINE_NAMES}, not "MAC"',
        ),
        (
            changed("engines", value=["MAC"]),
            f"configuration.engines must be an object with engines of {ENGINE_NAMES}, not an array",
        ),
        (
            changed("engines", "FOO", value={}),
            f'configuration.engines must have no engines but {ENGINE_NAMES}, and has "FOO"',
        ),
        (
            changed("engines", "ADD", value=2),
            "configuration.engines.ADD must be an object with the fields tables, not 2",
        ),
        (changed("engines", "MAC", value=None), "configuration.engines.MAC must be an empty object, not null"),
        (
            changed("engines", "ADD", "tables", value=3),
            "configuration.engines.ADD: tables must be a power of two, not 3",
        ),
        (
            changed("engines", "DEPTHWISE", "taps", value=3),
            "configuration: DEPTHWISE.taps must be at most columns (2), not 3",
        ),
        (
            without("engines", "MAC"),
            (
                "configuration: engines must be some with MAC among them, not "
                "MAXIMUM, DEPTHWISE, XNOR, ADD, BINARY_MAXIMUM, MULTIPLY"
            ),
        ),
        (changed("array", "lanes", value=True), "configuration.array.lanes must be an integer, not true"),
        (changed("array", "lanes", value=4.0), "configuration.array.lanes must be an integer, not 4.0"),
        (changed("array", "lanes", value="4"), 'configuration.array.lanes must be an integer, not "4"'),
        (changed("array", "lanes", value=[4]), "configuration.array.lanes must be an integer, not an array"),
        (changed("array", "lanes", value=float("nan")), "numbers must be finite, not NaN"),
        (changed("array", "lanes", value=float("-inf")), "numbers must be finite, not -Infinity"),
        (changed("array", "lanes", value=5), "configuration.array: lanes must be a power of two, not 5"),
        (
            changed("resident_commands", value="x" * 1000),
            f'configuration.resident_commands must be an integer, not "{"x" * 39}...',
        ),
        (
            changed("resident_commands", value=1 << 40),
            ("configuration: resident_commands must be a power of two between 4 and 65536, not 1099511627776"),
        ),
        (
            PRESETS["tiny"].to_json()[:-1] + ', "resident_commands": 8}',
            ('"resident_commands" must be given once, not twice'),
        ),
    ],
)
def test_text_that_is_no_configuration(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Config.from_json(text)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.text(max_size=5)
    | st.integers(-5, 70)
    | st.sampled_from([1 << power for power in range(70)]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
#: With several cores, so that every field is there.
CLUSTERED = json.loads(dataclasses.replace(PRESETS["tiny"], cluster=ClusterConfig(cores=2)).to_json())
PATHS = [(key,) for key in CLUSTERED] + [
    (key, inner) for key, part in CLUSTERED.items() if isinstance(part, dict) for inner in part
]


def is_kept(given: object, config: object) -> bool:
    """Whether all that a text says stands in that of the configuration, and nothing else but fields of engines."""
    if not isinstance(given, dict):
        return given == config
    return given.keys() <= config.keys() and all(is_kept(value, config[key]) for key, value in given.items())


@settings(derandomize=True, max_examples=150)
@given(path=st.sampled_from(PATHS), value=JSON)
def test_any_value_anywhere_is_a_configuration_or_refused(path: tuple[str, ...], value: object) -> None:
    try:
        config = Config.from_json(changed(*path, value=value, cores=2))
    except ValueError:
        return
    given = json.loads(changed(*path, value=value, cores=2))
    if config.cores == 1:
        del given["cluster"]
    # What an engine is built with may be left to its defaults.
    assert is_kept(given, json.loads(config.to_json()))
    assert Config.from_json(config.to_json()) == config


@settings(derandomize=True, max_examples=150)
@given(text=st.text() | JSON.map(json.dumps))
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        Config.from_json(text)


def test_a_field_that_came_later_says_nothing_at_its_default() -> None:
    preset = PRESETS["ecp5-85k"]
    (one, two) = (
        dataclasses.replace(preset, engines=preset.engines.having(DEPTHWISE, DepthwiseConfig(3, chains=chains)))
        for chains in (1, 2)
    )
    assert one.hash == preset.hash
    assert "chains" not in one.to_json()
    assert two.hash != preset.hash
    assert Config.from_json(two.to_json()) == two
