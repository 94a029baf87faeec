"""The rules of Gnomon, pure: no clock, no I/O, no randomness."""
