"""Layers of which every channel stands for itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from .channels import ChannelRule
from .finished import Finished
from .tensor import Tensor


@dataclass(frozen=True, eq=False)
class Channelwise(Finished):
    """A layer that makes each channel of the same channel of its inputs, and all of them alike."""

    def of_channels(self, channels: range, source: Tensor) -> tuple[Self, range]:
        """The same layer on fewer channels."""
        return self, channels

    def channel_rule(self, source: Tensor, target: Tensor) -> ChannelRule:
        """Where the inputs' move, the output's do."""
        return ChannelRule.TIED
