"""Fast pointwise convolution: a butterfly on a pixel's channels, see :mod:`lutterfly.golden.numerics.fpc`."""

from ..engine import Engine
from .configuration import FpcConfig
from .fields import FIELDS
from .memory import FPC_WEIGHT

FPC = Engine(4, "FPC", configuration=FpcConfig, fields=FIELDS, memory=FPC_WEIGHT)
