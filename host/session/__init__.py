"""Sessions: from a model, a program or its file to answers, and to what they are compared with."""

from .loading import load, load_outcome, load_program
from .session import InferenceSession

__all__ = ["InferenceSession", "load", "load_outcome", "load_program"]
