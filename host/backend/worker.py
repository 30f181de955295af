"""One process that evaluates samples: it reads a graph and then portions of samples, and writes the outputs of each."""

from __future__ import annotations

import os
import pickle

from ..graph.evaluate import outputs_of


def serve() -> None:
    """Serve the process at the other end of standard input and output, until it ends."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # Whatever else is printed must not stand among the answers.
    os.dup2(2, 1)
    try:
        graph = pickle.load(requests)
        while True:
            portion = pickle.load(requests)
            try:
                answer = outputs_of(graph, portion)
            except (TypeError, ValueError, MemoryError) as error:
                answer = error
            answers.write(pickle.dumps(answer))
            answers.flush()
    except (EOFError, BrokenPipeError, pickle.UnpicklingError):
        # Nobody is there any more: the end of the file, in the middle of a message too.
        os._exit(0)
