"""The routes of limits: what may happen at once and how often, changed at run time."""

from __future__ import annotations

import litestar
import msgspec
from litestar.datastructures import State
from litestar.params import FromPath

from gnomon.contracts.store import LimitUse
from gnomon.gateways.bodies import read_limit
from gnomon.gateways.rest.actions import scheduler_of
from gnomon.gateways.rest.answers import Bytes, answer_json
from gnomon.gateways.rest.guards import FOR_OPERATORS, principal_of
from gnomon.gateways.rest.request_fields import AnyRequest, QueryFields, read_body
from gnomon.model.limits import LimitKind

LIMIT_BYTES_MAX = 4096


class LimitAnswer(msgspec.Struct, kw_only=True):
    """A limit as it is shown, with how much of its parallelism is in use."""

    kind: LimitKind
    name: str
    parallel: int | None
    rate: float | None
    burst: int | None
    granted: int
    wanted: int


def show_limit(use: LimitUse) -> LimitAnswer:
    fields = msgspec.structs.asdict(use.limit)
    return LimitAnswer(**fields, granted=use.granted, wanted=use.wanted)


class LimitRoutes(litestar.Controller):
    """All limits, and one of them."""

    path = "/v1/limits"
    opt = FOR_OPERATORS

    @litestar.get()
    async def list(self, request: AnyRequest, state: State) -> Bytes:
        """All limits, by kind and name."""
        QueryFields(request, known=())
        found = await scheduler_of(state).list_limits()
        return answer_json({"limits": [show_limit(use) for use in found]})

    @litestar.get("/{kind:str}/{name:str}")
    async def get(
        self, kind: FromPath[str], name: FromPath[str], request: AnyRequest, state: State
    ) -> Bytes:
        """One limit."""
        QueryFields(request, known=())
        return answer_json(show_limit(await scheduler_of(state).get_limit(kind, name)))

    @litestar.put("/{kind:str}/{name:str}", request_max_body_size=LIMIT_BYTES_MAX)
    async def set(
        self, kind: FromPath[str], name: FromPath[str], request: AnyRequest, state: State
    ) -> Bytes:
        """Set it, or change it."""
        QueryFields(request, known=())
        limit = read_limit(await read_body(request), kind, name)
        use = await scheduler_of(state).set_limit(limit, actor=principal_of(request).name)
        return answer_json(show_limit(use))

    @litestar.delete("/{kind:str}/{name:str}", status_code=200)
    async def drop(
        self, kind: FromPath[str], name: FromPath[str], request: AnyRequest, state: State
    ) -> Bytes:
        """Have no such limit any more."""
        QueryFields(request, known=())
        actor = principal_of(request).name
        use = await scheduler_of(state).drop_limit(kind, name, actor=actor)
        return answer_json(show_limit(use))
