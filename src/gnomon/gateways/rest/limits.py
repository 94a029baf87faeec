"""The handlers of limits: what may happen at once and how often, changed at run time."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gnomon.contracts.store import LimitUse
from gnomon.gateways.bodies import read_struct
from gnomon.gateways.rest.call import Call
from gnomon.gateways.rest.constraints import LIMIT_FIELDS
from gnomon.model.limits import Limit, LimitKind, limit_key

LIMIT_BYTES_MAX = 4096


class LimitBody(msgspec.Struct, forbid_unknown_fields=True):
    """A limit that the path names; what is left out is not limited."""

    parallel: Annotated[int | None, msgspec.Meta(extra_json_schema=LIMIT_FIELDS["parallel"])] = None
    rate: Annotated[float | None, msgspec.Meta(extra_json_schema=LIMIT_FIELDS["rate"])] = None
    burst: Annotated[int | None, msgspec.Meta(extra_json_schema=LIMIT_FIELDS["burst"])] = None


class LimitAnswer(msgspec.Struct, kw_only=True):
    """A limit, and how much of its parallelism is in use."""

    kind: LimitKind
    name: str
    parallel: int | None
    rate: float | None
    burst: int | None
    granted: int
    wanted: int


class LimitList(msgspec.Struct):
    """All limits, by kind and name."""

    limits: list[LimitAnswer]


def show_limit(use: LimitUse) -> LimitAnswer:
    fields = msgspec.structs.asdict(use.limit)
    return LimitAnswer(**fields, granted=use.granted, wanted=use.wanted)


async def list_limits(call: Call) -> LimitList:
    """All limits."""
    return LimitList([show_limit(use) for use in await call.services.scheduler.list_limits()])


async def get_limit(call: Call, limit_kind: str, name: str) -> LimitAnswer:
    """A limit."""
    return show_limit(await call.services.scheduler.get_limit(limit_kind, name))


async def set_limit(call: Call, limit_kind: str, name: str) -> LimitAnswer:
    """Set a limit, or change it."""
    body = read_struct(await call.body(), LimitBody)
    key = limit_key(limit_kind, name)
    limit = Limit(kind=key.kind, name=key.name, **msgspec.structs.asdict(body))
    return show_limit(await call.services.scheduler.set_limit(limit, actor=call.actor))


async def drop_limit(call: Call, limit_kind: str, name: str) -> LimitAnswer:
    """Have no such limit any more."""
    scheduler = call.services.scheduler
    return show_limit(await scheduler.drop_limit(limit_kind, name, actor=call.actor))
