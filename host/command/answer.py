"""Answers: what a command has to say, as text and as values for JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command answers.

    Attributes
    ----------
    text : str
        For people.
    values : dict
        For scripts.
    is_right : bool
        False if something that was checked is wrong.
    is_predicted : bool
        False if cycles that were measured are not those that were predicted.
    """

    text: str
    values: dict[str, Any]
    is_right: bool = True
    is_predicted: bool = True
