"""Sessions: inference on a model, a program or a file of one, and comparison of the results with the references."""

from .loading import load, load_program
from .session import InferenceSession

__all__ = ["InferenceSession", "load", "load_program"]
