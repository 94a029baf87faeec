"""Benchmarks: Gnomon beside its rivals or a bare floor, in the same run, with durable settings."""
