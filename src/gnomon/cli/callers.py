"""Who may call the servers of this process, and how that is told."""

from __future__ import annotations

from gnomon.app import App
from gnomon.gateways.auth import Authorizer

NOBODY_NEEDS_ONE = (
    "No authentication: it answers this machine only. `gnomon token create` makes tokens; "
    "with the first one, every call needs one."
)
ONE_IS_NEEDED = "Every call but /health needs a token (`gnomon token create`)."
THERE_IS_NONE = "Every call but /health needs a token, and there is none: `gnomon token create`."


def authorizer_of(app: App) -> Authorizer:
    """One for all gateways of a process: their limits count together."""
    is_required = app.settings.server.auth == "token"
    return Authorizer(
        app.store.tokens,
        clock=app.env.clock,
        redact=app.settings.server.redact,
        required=is_required,
    )


async def callers_text(app: App) -> str:
    """A line that says whether a token is needed."""
    if await app.store.tokens.has_any():
        return ONE_IS_NEEDED
    return THERE_IS_NONE if app.settings.server.auth == "token" else NOBODY_NEEDS_ONE
