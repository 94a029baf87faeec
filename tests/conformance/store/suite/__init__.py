"""What every engine must do: plain classes of tests, one module per part of the contract.

To use it, import the classes into a test module and give two fixtures: `store`, an open and
migrated `Store`, and `given`, a `Given` for it. The database's clock must be the real one; nothing
here waits for luck, but some tests wait for a few milliseconds to have passed.
"""
