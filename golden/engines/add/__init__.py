"""Sums of two operands, each looked up in a table of its own."""

from ..engine import Engine
from .configuration import AddConfig
from .fields import FIELDS
from .memory import ADD_TABLE

ADD = Engine(5, "ADD", configuration=AddConfig, fields=FIELDS, memory=ADD_TABLE)
