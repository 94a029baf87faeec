"""Every engine keeps the contract of `TokenStore`, and writes the audit."""

from tests.conformance.store.suite.tokens import TestAudit, TestTokens

__all__ = ["TestAudit", "TestTokens"]
