"""Prediction of cycles: a simulation of a program's commands in time, before it runs."""
