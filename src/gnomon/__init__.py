"""Gnomon runs actions at their time, durably, and never loses one."""

__version__ = "0.1.0"
