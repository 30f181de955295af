"""The promise, end to end: golden model and simulated core return ONNX Runtime's bytes, in the predicted cycles."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

from cocotb_tests.support.networks.generated import FORMS, TINY, Generated, Limits, chain, layer
from cocotb_tests.support.oracles.exactness import assert_right, needs_reference
from cocotb_tests.support.tiers import sweep
from lutterfly.examples import digits
from lutterfly.golden.presets import PRESETS
from lutterfly.host.command.main import main
from lutterfly.host.compiler import compile_model
from lutterfly.host.model.reference import Reference
from lutterfly.host.session.verify import verify
from lutterfly.host.simulation.simulator import MemorySettings

pytestmark = needs_reference

KINDS = ("conv", "conv1d", "fc", "pool", "activation")
#: As much as a layer of the issue's ranges can be on a simulator in seconds.
WIDE = Limits(side=14, map_bytes=12 << 10, weight_bytes=32 << 10, macs=1_500_000)


@pytest.mark.regress
@pytest.mark.parametrize("preset", ["tiny", "ecp5-85k"])
@pytest.mark.parametrize("form", digits.FORMS)
def test_digits(form: str, preset: str) -> None:
    found = verify(digits.model_path(form).read_bytes(), PRESETS[preset], samples=3)
    assert_right(found)
    assert len(found.layers) == len(found.program.layers) + 1


def _generated(number: int, limits: Limits) -> Generated:
    """Every kind of layer in turn, both forms and both types, then chains."""
    options = {"form": FORMS[number % 2], "unsigned": number % 3 == 2, "limits": limits}
    return chain(number, **options) if number % 3 == 0 else layer(KINDS[number % len(KINDS)], number, **options)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", range(24))
def test_generated_on_tiny(number: int) -> None:
    assert_right(verify(_generated(number, TINY).model, PRESETS["tiny"], samples=2, seed=number))


@pytest.mark.demo_core
@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", sweep(range(100, 140), kept=range(100, 116)))
def test_generated_on_ecp5_85k(number: int) -> None:
    assert_right(verify(_generated(number, WIDE).model, PRESETS["ecp5-85k"], samples=2, seed=number))


@pytest.mark.regress
@pytest.mark.parametrize("preset", ["tiny", "ecp5-85k"])
@pytest.mark.parametrize("number", range(1000, 1400))
def test_generated_sweep(preset: str, number: int) -> None:
    limits = TINY if preset == "tiny" else WIDE
    assert_right(verify(_generated(number, limits).model, PRESETS[preset], samples=3, seed=number))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("preset", ["tiny", pytest.param("ecp5-85k", marks=pytest.mark.demo_core)])
@pytest.mark.parametrize("seed", range(3))
def test_any_bus_gives_the_same_bytes(preset: str, seed: int) -> None:
    settings = MemorySettings(
        read_latency=3 + 90 * seed,
        write_latency=5 + 30 * seed,
        beat_interval=1 + seed,
        outstanding=1 + 3 * seed,
        seed=seed,
        stall_probability=0.3,
    )
    found = verify(_generated(3 * seed, TINY).model, PRESETS[preset], samples=2, seed=seed, settings=settings)
    assert not found.mismatched_bytes
    assert not found.layers


@pytest.mark.regress
def test_a_program_is_verified_like_its_model() -> None:
    program = compile_model(digits.model_path("qop").read_bytes(), PRESETS["tiny"])
    assert_right(verify(program.to_bytes(), PRESETS["tiny"], samples=1))


@pytest.mark.regress
@pytest.mark.parametrize("place", [0, -300])
def test_a_wrong_constant_is_seen(place: int) -> None:
    program = compile_model(digits.model_path("qop").read_bytes(), PRESETS["tiny"])
    constants = np.frombuffer(program.constants, np.uint8).copy()
    constants[place] ^= 0x40
    found = verify(dataclasses.replace(program, constants=constants.tobytes()).to_bytes(), PRESETS["tiny"], samples=1)
    wrong = [tensor for tensor in found.tensors if tensor.mismatched]
    assert wrong
    assert all(tensor.golden == 0 and tensor.machine == tensor.rtl for tensor in wrong if tensor.machine is not None)


def test_tensors_that_onnx_runtime_does_not_show_are_named(monkeypatch) -> None:
    run = Reference.run
    monkeypatch.setattr(Reference, "run", lambda *words: {"logits": run(*words)["logits"]})
    found = verify(digits.model_path("qop").read_bytes(), PRESETS["tiny"], samples=1)
    *inner, output = found.tensors
    assert found.unseen == [tensor.name for tensor in inner]
    assert {tensor.golden for tensor in inner} == {None}
    assert (output.name, output.rtl) == ("logits (output)", 0)


def answer(capsys: pytest.CaptureFixture[str], path: Path) -> tuple[int, dict, str]:
    """Exit code, values and the last line of `lutterfly verify`."""
    words = ["verify", str(path), "--config", "tiny", "--samples", "1"]
    code = main([*words, "--json"])
    values = json.loads(capsys.readouterr().out)
    assert main(words) == code
    return code, values, capsys.readouterr().out.splitlines()[-1]


@pytest.mark.regress
def test_the_verdict_tells_wrong_bytes_from_wrong_predictions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right = compile_model(digits.model_path("qop").read_bytes(), PRESETS["tiny"])
    constants = np.frombuffer(right.constants, np.uint8).copy()
    constants[-300] ^= 0x40
    first, *others = right.layers
    core = dataclasses.replace(right.cores[0], layers=(dataclasses.replace(first, cycles=9), *others))
    changes = {"constants": constants.tobytes()}, {"cores": (core,)}
    damaged, mispredicted, both = (
        dataclasses.replace(right, **change) for change in (*changes, changes[0] | changes[1])
    )
    off = f"the predicted cycles are off by more than 2% and 16 cycles in {first.name}"
    path = tmp_path / "net.program"
    for program, code, bytes_right, cycles_right, verdict in (
        (right, 0, True, True, "all bytes are right; the cycles are as predicted"),
        (mispredicted, 3, True, False, f"all bytes are right; {off}"),
        (damaged, 1, False, True, r"bytes differ in .*; the cycles are as predicted"),
        (both, 1, False, False, f"bytes differ in .*; {off}"),
    ):
        path.write_bytes(program.to_bytes())
        found, values, line = answer(capsys, path)
        assert (found, values["bytes_right"], values["cycles_right"]) == (code, bytes_right, cycles_right)
        assert (values["mismatched_bytes"] == 0) == bytes_right
        assert line == f"verdict: {values['verdict']}"
        assert re.fullmatch(verdict, values["verdict"]), values["verdict"]
