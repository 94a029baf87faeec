"""The handler that says what a schedule means. Nothing is stored."""

from __future__ import annotations

from gnomon.gateways.rest.call import Call
from gnomon.scheduler.preview import COUNT_DEFAULT, Preview


async def show_preview(call: Call) -> Preview:
    """The next firings of a cron expression or a period."""
    query = call.query
    return await call.services.scheduler.preview(
        cron=query.one("cron"),
        timezone=query.one("timezone"),
        every=query.one("every"),
        from_=query.moment("from"),
        count=query.number("count", COUNT_DEFAULT),
    )
