"""Boards on a cable: their bitstreams, and the program that loads them."""
