"""Reports of networks, each observed once on the simulated core: one that its memories hold, one that is more.

A third one, ``joined``, has tensors that are channels of another one.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from blocks import join, restore, state
from generated import TINY, Limits, Maker, chain

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
    return chain(16, form="qdq", limits=_LARGE).model if network == "large" else _joined()


def _joined() -> bytes:
    made = Maker(np.random.default_rng(0), "qdq", unsigned=False, limits=TINY)
    made.start((1, 4, 8, 8))
    trunk, parts = state(made), []
    for _ in range(2):
        restore(made, trunk)
        made.product("Conv", (8, 4, 3, 3), 0, (1, 8, 8, 8), pads=[1, 1, 1, 1])
        parts.append(state(made))
    # What is written first does not lie first.
    join(made, parts[::-1])
    made.product("Conv", (6, 16, 1, 1), 0, (1, 6, 8, 8))
    return made.serialise()


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
