"""Machines that do not know the same time zones: what one can decide, another cannot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from gnomon.contracts.store import ArrivalResult, BeginResult, BegunAttempt, LapsedRow, Store
from gnomon.model.spec import Cron, Spec

ZONE = "Europe/Kyiv"
NOWHERE = "Europe/Kyyv"  # what the same name is to a machine that does not know it
Row = TypeVar("Row", BegunAttempt, LapsedRow)


def zoned(spec: Spec) -> Spec:
    """By a calendar in the zone that not everybody knows."""
    policy = Cron(expression="* * * * *", timezone=ZONE)
    return msgspec.structs.replace(spec, policy=policy, drift=False)


def without_zone(store: Store) -> Store:
    """The store as a machine sees it that does not know the zone."""
    work: Any = _Ignorant(store.work)
    return msgspec.structs.replace(store, work=work)


class _Ignorant:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._inner, verb)

    async def begin(self, *args: Any, **named: Any) -> BeginResult:
        result: BeginResult = await self._inner.begin(*args, **named)
        return msgspec.structs.replace(result, begun=_spoilt(result.begun))

    async def move_and_begin(self, *args: Any, **named: Any) -> ArrivalResult:
        result: ArrivalResult = await self._inner.move_and_begin(*args, **named)
        return msgspec.structs.replace(result, begun=_spoilt(result.begun))

    async def find_begun(self, *args: Any, **named: Any) -> Sequence[BegunAttempt]:
        return _spoilt(await self._inner.find_begun(*args, **named))

    async def list_lapsed(self, *args: Any, **named: Any) -> Sequence[LapsedRow]:
        return _spoilt(await self._inner.list_lapsed(*args, **named))


def _spoilt(rows: Sequence[Row]) -> list[Row]:
    return [_spoil(row) for row in rows]


def _spoil(row: Row) -> Row:
    policy = row.spec.policy
    if not isinstance(policy, Cron) or policy.timezone != ZONE:
        return row
    spec = msgspec.structs.replace(
        row.spec, policy=msgspec.structs.replace(policy, timezone=NOWHERE)
    )
    return msgspec.structs.replace(row, spec=spec)
