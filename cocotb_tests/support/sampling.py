"""Samples of a sweep: as few cases as have every value of every parameter.

Source: "each choice coverage", Ammann and Offutt, *Introduction to Software Testing*, 6.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def chosen(cases: Sequence[Mapping[str, Any]], most: int | None) -> list[int]:
    """Places of the cases to run.

    Parameters
    ----------
    cases : sequence of mappings
        For each case what tells the values of every parameter apart.
    most : int, optional
        So many at most, evenly spaced among those that have every value once.
    """
    left = {value for case in cases for value in case.items()}
    found: list[int] = []
    while left:
        best = max(range(len(cases)), key=lambda place: (len(left & cases[place].items()), -place))
        found.append(best)
        left -= cases[best].items()
    if most is None or most >= len(found):
        return sorted(found)
    return [found[place * len(found) // most] for place in range(most)]
