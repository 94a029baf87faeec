"""The peers beside Gnomon: each in an environment of its own, by its public API."""
