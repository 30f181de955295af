"""Software of the host: frontend, compiler, driver, transports, session and command line."""

from .session import InferenceSession

__all__ = ["InferenceSession"]
