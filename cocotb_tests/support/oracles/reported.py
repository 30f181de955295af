"""Reports of networks, each observed once on the simulated core: one that its memories hold, one that is more, one
whose channels are put side by side without a copy, and that one with connections off."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from cocotb_tests.support.networks.blocks import join, restore, state
from cocotb_tests.support.networks.generated import TINY, Limits, Maker, chain
from cocotb_tests.support.networks.pruning import pruned
from lutterfly.examples import digits
from lutterfly.golden.presets import PRESETS
from lutterfly.host import InferenceSession
from lutterfly.host.compiler import encode, plan_graph
from lutterfly.host.compiler.plan import Plan
from lutterfly.host.frontend import import_model
from lutterfly.host.program import read_body
from lutterfly.host.report.gather import Facts, gather
from lutterfly.host.report.observe import observe

NETWORKS = ("digits", "large", "joined")
#: More than `tiny` holds: its chain 16 spills a tensor, is executed in parts, and streams weights and commands.
_LARGE = Limits(side=24, map_bytes=24 << 10, weight_bytes=32 << 10, macs=1_500_000)


def model(network: str) -> bytes:
    if network == "digits":
        return Path(digits.model_path("qdq")).read_bytes()
    if network == "large":
        return chain(16, form="qdq", limits=_LARGE).model
    return _joined() if network == "joined" else pruned(_joined(), 1)


def _joined() -> bytes:
    """A convolution on what two others give, side by side, and max pooling that is done in two steps."""
    made = Maker(np.random.default_rng(7), "qop", False, TINY)
    made.start((1, 4, 7, 7))
    start, parts = state(made), []
    for size in (1, 3):
        restore(made, start)
        made.product("Conv", (8, 4, size, size), 0, (1, 8, 7, 7), pads=[size // 2] * 4)
        parts.append(state(made))
    # What is written first does not lie first.
    join(made, parts[::-1])
    made.product("Conv", (4, 16, 1, 1), 0, (1, 4, 7, 7))
    made.pool((1, 4, 7, 7), kernel_shape=[5, 5], pads=[2, 2, 2, 2])
    return made.finish().model


def feeds(session: InferenceSession, samples: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {
        info.name: rng.uniform(-1, 1, (samples, *info.sample_shape)).astype(info.dtype) for info in session.get_inputs()
    }


@functools.cache
def report_of(network: str) -> tuple[Plan, Facts]:
    config = PRESETS["tiny"]
    plan = plan_graph(import_model(model(network)), config)
    program = encode(plan)
    bodies, session = [*map(read_body, program.cores)], InferenceSession(program, config)
    inputs = feeds(session)
    session.run(None, inputs)
    (observation,) = observe(session, session.transport.simulator, bodies, inputs)
    return plan, gather(f"{network}.onnx", session.program, config, observation)
