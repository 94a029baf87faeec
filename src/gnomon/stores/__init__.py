"""Engines: the implementations of `gnomon.contracts.store`."""
