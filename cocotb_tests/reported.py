"""Reports of two networks, each observed once on the simulated core: one that its memories hold, one that is more."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from generated import Limits, chain

from lutterfly.examples import digits
from lutterfly.golden.config import PRESETS
from lutterfly.host import InferenceSession
from lutterfly.host.compiler.plan import Plan
from lutterfly.host.report.gather import Facts, gather
from lutterfly.host.report.observe import observe, plan_of

NETWORKS = ("digits", "large")
#: More than `tiny` holds: its chain 16 spills a tensor, is executed in parts, and streams weights and commands.
_LARGE = Limits(side=24, map_bytes=24 << 10, weight_bytes=32 << 10, macs=1_500_000)


def model(network: str) -> bytes:
    if network == "digits":
        return Path(digits.model_path("qdq")).read_bytes()
    return chain(16, form="qdq", limits=_LARGE).model


def feeds(session: InferenceSession, samples: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {
        info.name: rng.uniform(-1, 1, (samples, *info.sample_shape)).astype(info.dtype)
        for info in session.get_inputs()
    }


@functools.cache
def report_of(network: str) -> tuple[Plan, Facts]:
    config = PRESETS["tiny"]
    session = InferenceSession(model(network), config)
    inputs = feeds(session)
    session.run(None, inputs)
    plan = plan_of(session.program, config, network)
    observation = observe(session, session.transport.simulator, plan, inputs)
    return plan, gather(f"{network}.onnx", session.program, config, plan, observation)
