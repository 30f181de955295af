"""The columns of the multiplier array chained: sums of products of each lane over columns and steps."""

from ..engine import Engine
from .configuration import DepthwiseConfig
from .fields import FIELDS

DEPTHWISE = Engine(2, "DEPTHWISE", configuration=DepthwiseConfig, fields=FIELDS)
