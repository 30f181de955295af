"""Two neighbouring results of three taps at a time, see :mod:`lutterfly.golden.numerics.winograd`."""

from ..engine import Engine
from .configuration import WinogradConfig
from .fields import FIELDS

WINOGRAD = Engine(8, "WINOGRAD", configuration=WinogradConfig, fields=FIELDS)
