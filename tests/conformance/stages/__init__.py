"""The exact semantics of stages, one test each (stages.md, section 5)."""
