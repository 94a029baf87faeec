"""Executors: one module per kind of effect, one protocol (`gnomon.contracts.executor`).

Which executor gets which effect is the worker's business; what all of them promise is in
`tests.conformance.executor.suite`.
"""
