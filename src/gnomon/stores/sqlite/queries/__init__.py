"""The SQL of this engine, by the contract's verbs."""

from __future__ import annotations

from gnomon.queries import load

SQL = {name: query.sql for name, query in load(__name__).items()}
