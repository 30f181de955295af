"""Operands, proved: what ADD, MULTIPLY and the maxima give comes of the words of one window, whatever is around it; and
the columns of DEPTHWISE see words of their own command.

Each of these engines keeps something from one step to the next, and so from one command to the next: the word before,
the first operand, what is greatest so far. Here steps come with any pauses, and what a command says may change at every
step. The reference of a window knows its own steps alone: it begins anew with the first one.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Module, Mux, Signal, Value, signed
from amaranth.lib import data

from cocotb_tests.support.proofs import Proof, ProofError, broken, entry, inside, prove
from cocotb_tests.support.tiers import needs_yosys
from lutterfly.golden.elements import DIFFERENCE_BITS
from lutterfly.golden.engines import DEPTHWISE
from lutterfly.golden.numerics.multiplication import PRODUCT_FRACTION_BITS
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.engines import add, depthwise, maximum, multiply
from lutterfly.hdl.engines.mac_array import ColumnHop
from lutterfly.hdl.parts.device import MULTIPLIER_LATENCY
from lutterfly.hdl.parts.isa import field_shape
from lutterfly.hdl.parts.pipeline import delay

pytestmark = needs_yosys

CONFIG = PRESETS["tiny"]
LANES = CONFIG.array.lanes


class OperandsProof(Proof):
    """An engine with free steps: a window begins with the step after one that fires."""

    def __init__(self, module: ModuleType):
        super().__init__()
        self.unit = self.component(module)
        #: From a word to the result that it completes.
        self.latency = max(self.unit.latencies.values())

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        step = unit.step
        m.d.comb += [
            step.as_value().eq(self.free(len(step.as_value()), name="steps")),
            unit.word.eq(self.free(8 * LANES, name="words")),
        ]
        # No step of the window has come.
        begins = Signal(init=1)
        with m.If(step.valid):
            m.d.sync += begins.eq(step.fire)
        ends = step.valid & step.fire
        wanted = self.elaborate_window(m, begins, [unit.word.word_select(lane, 8).as_signed() for lane in range(LANES)])
        m.d.comb += [
            Assert(unit.result.valid == delay(m, ends, self.latency, name="ends")),
            *(
                Assert(~unit.result.valid | (found == value))
                for found, value in zip(unit.result.lanes, wanted, strict=True)
            ),
            Cover(unit.result.valid & delay(m, ends & ~begins, self.latency, name="ends_a_longer_one")),
        ]
        return m

    def stands(self, m: Module, found: Value, kept: Signal, begins: Signal, name: str) -> Assert:
        """Within a window the engine holds what the reference does, as much later as results come."""
        later, is_over = (delay(m, one, self.latency - 1, name=f"later_{name}_{one.name}") for one in (kept, begins))
        return Assert(is_over | (found == later))

    def elaborate_window(self, m: Module, begins: Signal, words: list[Value]) -> list[Value]:
        """Assume what windows are like; return what the lanes of a result must be."""
        raise NotImplementedError


class AddProof(OperandsProof):
    """Two steps."""

    def component(self, module: ModuleType) -> add.AddOperands:
        return module.AddOperands(CONFIG)

    def elaborate_window(self, m: Module, begins: Signal, words: list[Value]) -> list[Value]:
        step, wanted = self.unit.step, []
        m.d.comb += Assume(~step.valid | (step.fire == ~begins))
        for lane, word in enumerate(words):
            first = Signal(signed(8), name=f"first_{lane}")
            with m.If(step.valid & begins):
                m.d.sync += first.eq(word)
            # Between the words of a window the first one stands in the engine, as the latest of two.
            m.d.comb += self.stands(m, self.unit.result.lanes[lane][8:16].as_signed(), first, begins, f"first_{lane}")
            wanted.append(delay(m, Cat(first, word), self.latency, name=f"wanted_{lane}").as_signed())
        return wanted


class MaximumProof(OperandsProof):
    """Any number of steps, all by byte or all by bit."""

    def component(self, module: ModuleType) -> maximum.Maximum:
        return module.Maximum(CONFIG)

    def elaborate_window(self, m: Module, begins: Signal, words: list[Value]) -> list[Value]:
        step, wanted, by_bit = self.unit.step, [], Signal()
        with m.If(step.valid):
            m.d.sync += by_bit.eq(step.by_bit)
        m.d.comb += Assume(~step.valid | (step.clear == begins) & (begins | (step.by_bit == by_bit)))
        for lane, word in enumerate(words):
            best, kept = Signal(signed(8), name=f"best_{lane}"), Signal(signed(8), name=f"kept_{lane}")
            joined = Mux(step.by_bit, word | kept, Mux(word > kept, word, kept))
            m.d.comb += best.eq(Mux(begins, word, joined))
            with m.If(step.valid):
                m.d.sync += kept.eq(best)
            m.d.comb += self.stands(m, self.unit.result.lanes[lane], kept, begins, f"kept_{lane}")
            wanted.append(delay(m, best, self.latency, name=f"wanted_{lane}"))
        return wanted


class MultiplyProof(OperandsProof):
    """Two steps; or one, whose first operand is that of the last window with two.

    A command begins with a window of two steps. Products are anybody's: what is multiplied is compared, and when.
    """

    #: Factors come so many cycles after the word.
    FACTORS = 4

    def component(self, module: ModuleType) -> multiply.Multiply:
        return module.Multiply(CONFIG)

    def elaborate_window(self, m: Module, begins: Signal, words: list[Value]) -> list[Value]:
        step, array, wanted = self.unit.step, self.unit.borrowed_multipliers, []
        fields, has_first = step.fields.multiply, Signal()
        # What registers begin with has run out, as after any reset.
        runs = Signal()
        m.d.sync += runs.eq(1)
        settled, is_known = (
            delay(m, runs, self.FACTORS, name="settled"),
            delay(m, has_first, self.FACTORS, name="known"),
        )
        assert self.latency == self.FACTORS + MULTIPLIER_LATENCY + 1
        with m.If(step.valid):
            m.d.sync += has_first.eq(1)
        m.d.comb += [Assume(~step.valid | ~step.fire | has_first), Assume(~step.valid | step.fire | begins)]
        for lane, word in enumerate(words):
            first, second = (Signal(signed(DIFFERENCE_BITS), name=f"{name}_{lane}") for name in ("first", "second"))
            with m.If(step.valid & ~step.fire):
                m.d.sync += first.eq(word - fields.first_zero_point)
            m.d.comb += second.eq(Mux(step.valid & step.fire, word - fields.second_zero_point, 0))
            product = self.free(len(array.products[0][lane]), name=f"product_{lane}")
            m.d.comb += [
                array.products[0][lane].eq(product),
                Assert(~settled | (array.factors[0][lane] == delay(m, second, self.FACTORS, name=f"factor_{lane}"))),
                Assert(
                    ~is_known | (array.weights[0][lane] == delay(m, first, self.FACTORS - 1, name=f"weight_{lane}"))
                ),
            ]
            bits = delay(m, product, 1, name=f"wanted_{lane}")[: 2 * DIFFERENCE_BITS]
            wanted.append(Cat(Signal(PRODUCT_FRACTION_BITS, name=f"fraction_{lane}"), bits).as_signed())
        return wanted


class HopProof(Proof):
    """The line between two columns of a chain: the word of so many steps earlier as the command has rows.

    A step is the first one of its command, or what it says was there in the cycle before as well: see
    ``test_proof_windows.py``. Before it may have been anything, also another command with other rows, whose words are
    in the line.
    """

    latency = 1

    def __init__(self, module: ModuleType):
        super().__init__()
        rows = data.StructLayout({"rows": field_shape(DEPTHWISE.format, "rows")})
        step = data.StructLayout({"valid": 1, "chain": 1, "fields": data.StructLayout({"depthwise": rows})})
        stage = module.DepthwiseStage(CONFIG, DEPTHWISE)
        self.unit = ColumnHop(word_bits=1, step=step, column=1, stages=[stage])
        self.line = module._elaborate_line

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        step, rows, first = unit.step, unit.step.fields.depthwise.rows, self.free(name="is_first")
        m.d.comb += [
            step.as_value().eq(self.free(len(step.as_value()), name="steps")),
            unit.word.eq(self.free(name="words")),
        ]
        found = inside(unit, self.line)
        line = found._elaborate_line
        # The words of the latest steps, and how many of them are this command's.
        words, steps, rows_before = Signal(1 << len(rows)), Signal(len(rows)), delay(m, rows, 1, name="rows")
        own = Mux(first, 0, steps)
        with m.If(step.valid):
            m.d.sync += [words.eq(Cat(unit.word, words)), steps.eq(own + (own != (1 << len(rows)) - 1))]
        reaches = step.valid & step.chain & rows.any() & (own >= rows)
        m.d.comb += [
            Assume(~step.valid | first | (steps != 0) & (rows == rows_before)),
            Assert(~reaches | (found.coming_word == words.bit_select((rows - 1)[: len(rows)], 1))),
            *(
                Assert(
                    (place >= steps) | (entry(m, line.line, (line.pointer - 1 - place)[: len(rows)]) == words[place])
                )
                for place in range(1 << len(rows))
            ),
            Assert((steps == 0) | ~step.valid | first | (line.read_pointer == (line.pointer - rows)[: len(rows)])),
            Cover(reaches & ~first & (rows == 2)),
        ]
        return m


PROOFS = {depthwise: HopProof, add: AddProof, maximum: MaximumProof, multiply: MultiplyProof}


def _prove(module: ModuleType, folder: Path, *, changed: ModuleType | None = None) -> None:
    proof = PROOFS[module](changed or module)
    prove(proof, folder, depth=proof.latency + 2)


@pytest.mark.parametrize("module", PROOFS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_a_result_comes_of_the_words_of_its_window(module: ModuleType, tmp_path: Path) -> None:
    _prove(module, tmp_path)


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        # The line's pointer, where the step before has other rows.
        (depthwise, "read_pointer.eq(next_pointer - rows)", "read_pointer.eq(pointer - rows)"),
        # The operand of another window, where a pause lies between the two words.
        (add, "with m.If(step.valid):", "with m.If(1):"),
        # What a window of another command has left.
        (maximum, "self.step.valid & (self.step.clear | by_bit)", "self.step.valid & by_bit"),
        (maximum, "joins.eq(~self.step.clear & by_bit)", "joins.eq(by_bit)"),
        (multiply, "with m.If(here.begins):", "with m.If(here.begins | here.ends):"),
        (
            multiply,
            "Mux(self.step.fire, fields.second_zero_point, fields.first_zero_point)",
            "fields.second_zero_point",
        ),
    ],
)
def test_what_breaks_it_is_found(module: ModuleType, old: str, new: str, tmp_path: Path) -> None:
    with pytest.raises(ProofError, match=r"^something (fails after reset|does not follow)"):
        _prove(module, tmp_path, changed=broken(module, old, new))
