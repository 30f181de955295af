r"""Tries mixed networks: every tensor compared on golden functions, golden machine and simulated core.

    .venv/bin/python -m cocotb_tests.support.networks.mixed.trial --configs tiny,least \
        --first 0 --last 999 [--results FILE]

tries many, and says what became of them. Results are appended to a file of JSON lines, one for each network; what
stands there is not tried again.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cocotb_tests.support.networks.mixed.configurations import CONFIGS, DRAWN
from cocotb_tests.support.networks.mixed.features import Meetings
from lutterfly.host.driver.driver import AcceleratorError
from lutterfly.host.session.compare import Verification
from lutterfly.host.session.verify import verify
from lutterfly.host.simulation.simulator import SimulationError

from . import network
from .features import features

#: Of inferences back to back, after the one that fetches the program.
_INFERENCES = 2


@dataclass
class Trial:
    """What became of a network.

    Attributes
    ----------
    bytes : int
        Compared.
    wrong_outputs : int
        Bytes that differ in what the user gets.
    wrong_inside : list of str
        Tensors in between in which bytes differ, although no output does: a verdict that may be false.
    refused : str
        Why there is no program.
    stopped : str
        The error with which something else ended.
    late : list of str
        Layers whose cycles are not as predicted.
    """

    seed: int
    config_name: str
    text: str
    bytes: int = 0
    wrong_outputs: int = 0
    wrong_inside: list[str] = field(default_factory=list)
    refused: str = ""
    stopped: str = ""
    late: list[str] = field(default_factory=list)
    features: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def problem(self) -> str:
        """What is wrong with the bytes; empty if nothing is."""
        if self.stopped:
            return self.stopped
        if self.wrong_outputs:
            return f"{self.wrong_outputs} bytes of outputs differ"
        return f"bytes differ in {', '.join(self.wrong_inside)}" if self.wrong_inside else ""


def attempt(seed: int, config_name: str) -> Trial:
    """Try the network of a seed, the way a user goes: compile it, save the program, verify that."""
    found, began = network(seed, config_name), time.monotonic()
    trial = Trial(seed, config_name, found.text)
    try:
        program = found.program()
    except ValueError as error:
        trial.refused = str(error)
        return trial
    trial.features = sorted(features(found.graph(), program, found.config))
    try:
        verification = verify(program.to_bytes(), found.config, samples=_INFERENCES * program.batch)
    except (AcceleratorError, SimulationError, ValueError) as error:
        trial.stopped = f"{type(error).__name__}: {error}"
    else:
        _judge(trial, verification)
    trial.seconds = round(time.monotonic() - began, 2)
    return trial


def _judge(trial: Trial, verification: Verification) -> None:
    trial.bytes = verification.bytes
    outputs = {True: 0, False: 0}
    for tensor in verification.tensors:
        outputs[tensor.name.endswith(" (output)")] += tensor.mismatched
    trial.wrong_outputs = outputs[True]
    if not outputs[True]:
        trial.wrong_inside = [tensor.name for tensor in verification.tensors if tensor.mismatched]
    if not any(tensor.rtl is not None for tensor in verification.tensors):
        trial.stopped = "nothing was computed on the core"
    trial.late = [
        f"{layer.name} took {layer.measured} cycles, {layer.predicted} predicted"
        for layer in verification.layers
        if not layer.is_right
    ]


def reason(refusal: str) -> str:
    """A refusal without its names and numbers."""
    return re.sub(r"\d+", "N", refusal.partition(": ")[2] or refusal)


def summary(trials: Iterable[Trial]) -> str:
    """Numbers of networks, of bytes and of what was wrong."""
    trials = list(trials)
    tried = [trial for trial in trials if not trial.refused]
    lines = [
        f"networks tried: {len(tried)}",
        f"bytes compared: {sum(trial.bytes for trial in tried)}",
        f"bytes of outputs that differ: {sum(trial.wrong_outputs for trial in tried)}",
        f"networks in which inner tensors alone differ: {sum(bool(trial.wrong_inside) for trial in tried)}",
        f"networks that stopped: {sum(bool(trial.stopped) for trial in tried)}",
        f"networks off the predicted cycles: {sum(bool(trial.late) for trial in tried)}",
        f"networks refused: {len(trials) - len(tried)}",
    ]
    refusals = Counter(reason(trial.refused) for trial in trials if trial.refused)
    lines += [f"    {count}: {text}" for text, count in refusals.most_common()]
    wrong = [
        f"{trial.text}: {trial.problem or '; '.join(trial.late)}" for trial in tried if trial.problem or trial.late
    ]
    return "\n".join(lines + wrong)


def main() -> None:
    """Try the networks that have no result yet, and print the sums."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--configs",
        default="tiny",
        help=f"names, with commas: {', '.join(CONFIGS)}, {DRAWN}0 ..., tiny:2:layer, tiny:4:sample:own ...; or all",
    )
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--last", type=int, default=99, help="the last seed, which is tried too")
    parser.add_argument("--results", type=Path, default=Path("mixed.jsonl"))
    parser.add_argument("--summary", action="store_true", help="try nothing")
    options = parser.parse_args()
    names = [*CONFIGS] if options.configs == "all" else options.configs.split(",")
    wanted = {(seed, name) for name in names for seed in range(options.first, options.last + 1)}
    known: dict[tuple[int, str], Trial] = {}
    if options.results.exists():
        for line in options.results.read_text().splitlines():
            trial = Trial(**json.loads(line))
            known[trial.seed, trial.config_name] = trial
    for key in sorted(wanted - known.keys()) if not options.summary else ():
        known[key] = trial = attempt(*key)
        with options.results.open("a") as file:
            file.write(json.dumps(asdict(trial)) + "\n")
        if trial.refused or trial.problem or trial.late:
            print(f"{trial.text}: {trial.refused or trial.problem or '; '.join(trial.late)}", flush=True)
    tried = [known[key] for key in sorted(wanted & known.keys())]
    print(summary(tried))
    meetings = Meetings()
    for trial in tried:
        meetings.sample(trial.features)
    print("pairs of features that no network has:", "; ".join(meetings.holes()) or "none")


if __name__ == "__main__":
    main()
