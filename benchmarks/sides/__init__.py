"""The systems that are measured: Gnomon and its rivals, each with a worker program."""
