"""A receiver's answer: the beginning of its body, and how long it wants to be left alone.

The status decides; the body is for people to see. So a body that is too long, too slow or cut off
changes nothing, and must not cost the attempt the rest of its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Protocol

import aiohttp
from aiohttp.streams import StreamReader

RETRY_AFTER_MAX = timedelta(hours=1)
_PATIENCE_CODES = (429, 503)


class AnyResponse(Protocol):
    """What is asked of an answer, whoever got it."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def content(self) -> StreamReader: ...

    def close(self) -> None:
        """Hang up."""
        ...


async def read_beginning(
    response: AnyResponse, limit: asyncio.Timeout, *, bytes_max: int, patience_s: float
) -> bytes:
    """As much of the body as comes in time, up to the bound."""
    content = response.content
    if content.is_eof() and content.exception() is None:  # all is there
        answer = content.read_nowait(bytes_max)
        if not content.at_eof():
            response.close()
        return answer
    loop = asyncio.get_running_loop()
    left_s = (limit.when() or loop.time()) - loop.time()
    body = bytearray()
    try:
        async with asyncio.timeout(min(patience_s, left_s * 0.9)):
            while len(body) < bytes_max:
                chunk = await content.read(bytes_max - len(body))
                if not chunk:
                    break
                body += chunk
    except (TimeoutError, aiohttp.ClientError, OSError):
        response.close()
    if not content.at_eof():
        response.close()  # what is still to come would have to be read before any reuse
    return bytes(body)


def patience_of(response: AnyResponse, now: datetime) -> timedelta | None:
    """How long the receiver wants to be left alone, if its status says so."""
    if response.status not in _PATIENCE_CODES:
        return None
    headers = response.headers
    return retry_after(headers.get("Retry-After"), headers.get("Date"), now)


def retry_after(value: str | None, date: str | None, now: datetime) -> timedelta | None:
    """The header of this name: seconds, or a date by the receiver's own clock."""
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        seconds = int(value.lstrip("0")[:9] or "0")  # nine digits are over the bound anyway
        return min(timedelta(seconds=seconds), RETRY_AFTER_MAX)
    until, since = _http_date(value), _http_date(date) or now
    if until is None or until <= since:
        return None
    return min(until - since, RETRY_AFTER_MAX)


def _http_date(text: str | None) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text) if text else None
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)
