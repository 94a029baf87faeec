"""Every engine keeps the contract of `TokenStore`, and writes the audit."""

from gnomon.testing.store_suite.tokens import TestAudit, TestTokens

__all__ = ["TestAudit", "TestTokens"]
