"""Cycles: the commands of a program against the clock, before it runs."""
