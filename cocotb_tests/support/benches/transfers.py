"""Transfers for tests: legal ones drawn at random, and what makes a LOAD illegal."""

from __future__ import annotations

import numpy as np

from lutterfly.golden.config import Config
from lutterfly.golden.memories import SHARED_MEMORIES, LocalMemory, memories

#: Bytes of external memory that they may touch.
ARENA_BYTES = 1 << 15

ONE_RUN = {"row_pieces": 1, "rows": 1, "folds": 1}
GOOD_LOAD = {**ONE_RUN, "piece_bytes": 8}
#: What makes ``GOOD_LOAD`` illegal, in every configuration.
ILLEGAL_LOADS = [
    {"row_pieces": 0},
    {"piece_bytes": 0},
    {"rows": 0},
    {"folds": 0},
    {"memory": len(SHARED_MEMORIES)},
    {"memory": 15},
    {"row_pieces": 1 << 15, "piece_bytes": 1 << 17},
    {"memory": LocalMemory.WEIGHT, "local": 2},
    {"memory": LocalMemory.WEIGHT, "piece_bytes": 6},
    {"memory": LocalMemory.WEIGHT, "piece_bytes": 64, "row_pieces": 2},
    {"memory": LocalMemory.PARAMETER, "local": 4},
    {"memory": LocalMemory.PARAMETER, "piece_bytes": 12},
    {"memory": LocalMemory.LIST, "local": 2},
    {"memory": LocalMemory.LIST, "piece_bytes": 2},
    {"memory": LocalMemory.LIST, "folds": 2},
    {"memory": LocalMemory.TABLE, "rows": 2},
]


def place(rng: np.random.Generator, size_bytes: int, extent: int, steps: list[tuple[int, int]]) -> int:
    """A random start such that an object of ``extent`` bytes, moved by ``pitch`` up to ``count - 1`` times for each
    step, stays inside."""
    low = sum(min(0, pitch * (count - 1)) for pitch, count in steps)
    high = sum(max(0, pitch * (count - 1)) for pitch, count in steps) + extent
    return int(rng.integers(-low, size_bytes - high + 1))


def random_load(rng: np.random.Generator, config: Config) -> dict[str, int]:
    """A legal LOAD of about 500 bytes."""
    feature_bytes = config.memory.feature_bytes
    if rng.random() < 0.25:
        memory = memories(config)[int(rng.integers(1, len(memories(config))))]
        unit = memory.write_bytes(config.array.lanes)
        size = unit * int(rng.integers(1, 1 + min(max(300 // unit, 1), config.size_bytes(memory) // unit)))
        local = unit * int(rng.integers(0, (config.size_bytes(memory) - size) // unit + 1))
        return {
            "memory": memory,
            "row_pieces": 1,
            "rows": 1,
            "folds": 1,
            "piece_bytes": size,
            "local": local,
            "external": place(rng, ARENA_BYTES, size, []),
            "local_row": 999,
            "external_fold": 77,
        }
    size = int(rng.choice([1, 2, 3, 4, 7, 8, 12, 16, 17, 31, 64, 200, 500]))
    budget = max(1, 500 // size)
    pieces = int(rng.integers(1, min(budget, 40) + 1))
    rows = int(rng.integers(1, min(max(1, budget // pieces), 5) + 1))
    folds = int(rng.integers(1, min(max(1, budget // (pieces * rows)), 3) + 1))
    pitch = {
        name: int(rng.integers(-300, 301)) for name in ("external_row", "external_fold", "local_row", "local_fold")
    }
    pitch["local_piece"] = int(rng.choice([size, size + 1, 3 * size, -size, 0]))
    return {
        "memory": LocalMemory.FEATURE,
        "row_pieces": pieces,
        "rows": rows,
        "folds": folds,
        "piece_bytes": size,
        **pitch,
        "external": place(
            rng, ARENA_BYTES, pieces * size, [(pitch["external_row"], rows), (pitch["external_fold"], folds)]
        ),
        "local": place(
            rng,
            feature_bytes,
            size,
            [(pitch["local_row"], rows), (pitch["local_fold"], folds), (pitch["local_piece"], pieces)],
        ),
    }


def random_fill(rng: np.random.Generator, config: Config) -> dict[str, int]:
    """A legal FILL of up to 600 bytes."""
    size, rows, pitch = int(rng.integers(1, 100)), int(rng.integers(1, 7)), int(rng.integers(-200, 201))
    return {
        "piece_bytes": size,
        "rows": rows,
        "local_row": pitch,
        "value": int(rng.integers(0, 256)),
        "local": place(rng, config.memory.feature_bytes, size, [(pitch, rows)]),
    }


def random_store(rng: np.random.Generator, config: Config) -> dict[str, int]:
    """A legal STORE of about 500 bytes."""
    size = int(rng.choice([1, 2, 3, 7, 8, 16, 33, 100, 500]))
    rows = int(rng.integers(1, min(max(1, 500 // size), 12) + 1))
    pitch = {
        "external_row": int(rng.choice([size, size + 5, -size, 3000 // rows])),
        "local_row": int(rng.integers(-300, 301)),
    }
    return {
        "row_bytes": size,
        "rows": rows,
        **pitch,
        "external": place(rng, ARENA_BYTES, size, [(pitch["external_row"], rows)]),
        "local": place(rng, config.memory.feature_bytes, size, [(pitch["local_row"], rows)]),
    }
