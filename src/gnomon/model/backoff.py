"""Retry maths: how long to wait before the next attempt.

Pure. No number of failures can overflow inside the path that records a result: what is too large
for a float is above `max_period` anyway.
"""

from __future__ import annotations

from datetime import timedelta

from gnomon.model.spec import Retry


def retry_delay(retry: Retry, failures_before: int, *, chance: float = 0.0) -> timedelta:
    """`min(max_period, min_period + scale * back_off ** n)`, n = failures before this one, less a
    part of what that is above `min_period`: `jitter * chance`, a number from 0 to 1."""
    delay = _grown(retry, failures_before)
    if not retry.jitter:
        return delay
    return delay - (delay - retry.min_period) * (retry.jitter * chance)


def _grown(retry: Retry, failures_before: int) -> timedelta:
    if retry.scale == 0:  # also when the power is beyond any float
        return retry.min_period
    try:
        grown_s = retry.scale * retry.back_off**failures_before
    except OverflowError:
        return retry.max_period
    room_s = (retry.max_period - retry.min_period).total_seconds()
    if grown_s >= room_s:  # also true for infinity
        return retry.max_period
    return min(retry.max_period, retry.min_period + timedelta(seconds=grown_s))
