"""For tests: yours of what uses Gnomon, and ours of Gnomon itself. Nothing of ours imports it."""
