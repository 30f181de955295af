"""From write bursts to feature reads, and from the words that come back to beats."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden import isa
from ...golden.config import Config
from ...golden.timing.latencies import WORDS_IN_FLIGHT
from ..bus.axi import BEATS_BITS, write_beat_layout
from ..parts.assertions import Assertions
from ..parts.fifo import Fifo, counted, remains

__all__ = ["StoreBeats", "feature_word_layout"]

#: Words at the bus.
_OUTGOING = 2


def feature_word_layout(config: Config) -> data.StructLayout:
    """A word from the feature memory: ``lanes`` bytes, the first of them at the address that was asked for."""
    return data.StructLayout({"valid": unsigned(1), "data": unsigned(8 * config.array.lanes)})


class StoreBeats(wiring.Component):
    """Ask for one word each cycle, while there is room for it, and pass the words on as beats; the next burst follows
    without a gap.

    All outputs depend on registers only, but for ``bursts.ready``, which depends combinationally on ``read.ready``.

    Parameters
    ----------
    config : Config

    Members
    -------
    bursts : In(stream)
        ``source``: feature address of the first beat of a run, which begins with a burst that is ``first``; the run
        goes on from there. ``first_byte`` of the first beat and ``last_byte`` of the last one that are written.
    read : Out(stream(24))
    word : In(feature_word_layout)
    beats : Out(stream of write_beat_layout)
    """

    def __init__(self, config: Config):
        self.config = config
        byte = unsigned(ceil_log2(config.axi.data_bytes))
        super().__init__(
            {
                "bursts": In(
                    stream.Signature(
                        data.StructLayout(
                            {
                                "source": unsigned(isa.LOCAL_BITS),
                                "beats_minus_one": unsigned(BEATS_BITS),
                                "first_byte": byte,
                                "last_byte": byte,
                                "first": unsigned(1),
                            }
                        )
                    )
                ),
                "read": Out(stream.Signature(unsigned(isa.LOCAL_BITS))),
                "word": In(feature_word_layout(config)),
                "beats": Out(stream.Signature(write_beat_layout(config.axi.data_bits))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        data_bytes = self.config.axi.data_bytes
        word = unsigned(self.config.axi.data_bits)
        m.submodules.words = words = Fifo(word, depth=WORDS_IN_FLIGHT)
        # Words come to the bus, so that one that is not ready has to stop nothing near the feature memory, and wait for
        # strobes there.
        m.submodules.outgoing = Fifo(word, depth=_OUTGOING)
        m.submodules.strobes = strobes = Fifo(unsigned(data_bytes), depth=WORDS_IN_FLIGHT + _OUTGOING)
        burst, read, beat = self.bursts.payload, self.read, self.beats

        active = Signal()
        beats_left = Signal(BEATS_BITS, reset_less=True)
        # Strobes of the beat at hand before its end is cut, and of the last beat.
        strobe, last_strobe = Signal(data_bytes, reset_less=True), Signal(data_bytes, reset_less=True)
        has_room, last, asked = Signal(init=1), Signal(reset_less=True), Signal()
        m.d.comb += [
            read.valid.eq(active & has_room),
            asked.eq(read.valid & read.ready),
            self.bursts.ready.eq(~active | asked & last),
            strobes.input.valid.eq(asked),
            strobes.input.payload.eq(strobe & Mux(last, last_strobe, (1 << data_bytes) - 1)),
        ]
        with m.If(asked):
            m.d.sync += [
                read.payload.eq(read.payload + data_bytes),
                beats_left.eq(beats_left - 1),
                last.eq(beats_left == 1),
                strobe.eq((1 << data_bytes) - 1),
                active.eq(~last),
            ]
        with m.If(self.bursts.ready & self.bursts.valid):
            m.d.sync += [
                active.eq(1),
                beats_left.eq(burst.beats_minus_one),
                last.eq(burst.beats_minus_one == 0),
                strobe.eq(((1 << data_bytes) - 1) << burst.first_byte),
                last_strobe.eq(((1 << data_bytes) - 1) >> ~burst.last_byte),
            ]
            with m.If(burst.first):
                m.d.sync += read.payload.eq(burst.source)

        self._elaborate_words(m, asked, has_room)
        checks = Assertions(m, platform)
        checks.never(self.word.valid & ~words.input.ready, "STORE: a word finds its queue full")
        checks.never(asked & ~strobes.input.ready, "STORE: the strobes of a word find their queue full")
        checks.never(beat.valid & ~strobes.output.valid, "STORE: a word comes that was not asked for")
        return m

    def _elaborate_words(self, m: Module, asked: Signal, has_room: Signal) -> None:
        """Pass words on with their strobes.

        Room is reserved when a word is asked for, so that no queue can overflow. It comes back a cycle late: words are
        asked for at another end of the device.
        """
        words, outgoing, strobes, beat = m.submodules.words, m.submodules.outgoing, m.submodules.strobes, self.beats
        wiring.connect(m, words.output, outgoing.input)
        room = Signal(range(WORDS_IN_FLIGHT + 1), init=WORDS_IN_FLIGHT)
        left, passed = Signal(), Signal()
        m.d.comb += [
            words.input.valid.eq(self.word.valid),
            words.input.payload.eq(self.word.data),
            beat.valid.eq(outgoing.output.valid),
            beat.payload.data.eq(outgoing.output.payload),
            beat.payload.strobe.eq(strobes.output.payload),
            passed.eq(beat.valid & beat.ready),
            outgoing.output.ready.eq(passed),
            strobes.output.ready.eq(passed),
        ]
        m.d.sync += [
            left.eq(words.output.valid & words.output.ready),
            room.eq(counted(room, comes=left, leaves=asked)),
            has_room.eq(remains(room, leaves=asked, comes=left)),
        ]
