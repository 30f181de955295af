"""Cycles: the latencies that hardware and compiler share, and how long transfers and windows take."""
