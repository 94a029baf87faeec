"""Retry maths: how long to wait before the next attempt.

Pure. No number of failures can overflow inside the path that records a result: what is too large
for a float is above `max_period` anyway.
"""

from __future__ import annotations

from datetime import timedelta

from gnomon.model.spec import Retry


def retry_delay(retry: Retry, failures_before: int) -> timedelta:
    """`min(max_period, min_period + scale * back_off ** n)`, n = failures before this one."""
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
