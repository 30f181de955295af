"""Chunks of bytes into the memories."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden import isa
from ...golden.config import Config
from ...golden.memories import LocalMemory, memories
from ..memories.feature_memory import feature_write_layout
from ..parts.isa import field_shape
from .byte_aligner import chunk_layout

__all__ = ["LocalWrite", "local_write_layout"]


def local_write_layout(config: Config) -> data.StructLayout:
    """A write of one unit to a memory other than FEATURE.

    ``address`` counts units. WEIGHT takes all of ``data``, PARAMETER and ADD_TABLE the low 64 bits, LIST 32 and TABLE
    8.
    """
    return data.StructLayout(
        {
            "valid": unsigned(1),
            "memory": field_shape(isa.LOAD, "memory"),
            "address": unsigned(isa.LOCAL_BITS),
            "data": unsigned(8 * max(config.array.lanes, LocalMemory.PARAMETER.write_bytes(config.array.lanes))),
        }
    )


class LocalWrite(wiring.Component):
    """Pass chunks for the feature memory on at once; gather those for other memories into units, two cycles later.

    ``feature`` and ``chunks`` are connected combinationally both ways.

    Parameters
    ----------
    config : Config

    Members
    -------
    chunks : In(stream of chunk_layout)
    feature : Out(stream of feature_write_layout)
    local : Out(local_write_layout)
    done : Out(1)
        Combinational: the last chunk of a command is taken.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "chunks": In(stream.Signature(chunk_layout(config))),
                "feature": Out(stream.Signature(feature_write_layout(config))),
                "local": Out(local_write_layout(config)),
                "done": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        lanes, data_bytes = self.config.array.lanes, self.config.axi.data_bytes
        chunk = self.chunks.payload
        is_feature, exists = Signal(), Signal()
        m.d.comb += [
            is_feature.eq(chunk.memory == LocalMemory.FEATURE),
            self.chunks.ready.eq(~is_feature | self.feature.ready),
            exists.eq(self.chunks.valid & ~chunk.void),
            self.done.eq(exists & chunk.last & self.chunks.ready),
            self.feature.valid.eq(exists & is_feature),
            self.feature.payload.address.eq(chunk.address),
            self.feature.payload.count.eq(chunk.count),
            # Beyond a beat only a FILL writes, whose bytes are all the same.
            self.feature.payload.data.eq(Cat(chunk.data, chunk.data[:8].replicate(lanes - data_bytes))),
        ]

        # All but the feature memory are always ready: their chunks need not wait for what a handshake decides.
        gathers, gathered = Signal(), Signal.like(chunk, reset_less=True)
        m.d.sync += [gathers.eq(exists), gathered.eq(chunk)]
        words = Signal(
            data.ArrayLayout(self.config.axi.data_bits, len(self.local.data) // self.config.axi.data_bits),
            reset_less=True,
        )
        m.d.comb += self.local.data.eq(words)
        m.d.sync += [self.local.valid.eq(0), self.local.memory.eq(gathered.memory)]
        byte_bits = ceil_log2(data_bytes)
        with m.If(gathers), m.Switch(gathered.memory):
            for memory in memories(self.config):
                if memory is LocalMemory.FEATURE:
                    continue
                unit_bits = ceil_log2(memory.write_bytes(lanes))
                # Which word of the unit this is, if a unit has several.
                word = gathered.address[byte_bits : max(unit_bits, byte_bits)]
                with m.Case(memory):
                    m.d.sync += [
                        words[word].eq(gathered.data),
                        self.local.valid.eq(word.all()),
                        self.local.address.eq(gathered.address >> unit_bits),
                    ]
        return m
