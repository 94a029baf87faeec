"""What owners of shards do, on Citus: each part where it lives, if this process reaches that node.

There a part is like a database of one machine (`nodes.py`), and so is its `PostgresWork`. What it
does not reach goes through Citus, all together, as `PostgresWork` does by itself. Here answers are
put together, and nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import NamedTuple, TypeVar
from uuid import UUID

from gnomon.contracts.store import (
    ArrivalResult,
    BeginRequest,
    BeginResult,
    BegunAttempt,
    ConfirmResult,
    FinishRequest,
    HeldShard,
    Lane,
    MoveResult,
    PollResult,
    Recorded,
)
from gnomon.model.errors import StoreUnavailable
from gnomon.stores.postgres.arrivals import shares_of
from gnomon.stores.postgres.connection import Database, read_now
from gnomon.stores.postgres.rows import Decoder
from gnomon.stores.postgres.several import at_once, every, those_at_hand
from gnomon.stores.postgres.work import ROOM_TO_SHARE, PostgresWork

T = TypeVar("T")
R = TypeVar("R")


class WorkRoute(NamedTuple):
    """Some of the things that a verb is about, and who does it for them."""

    work: PostgresWork
    places: Sequence[int]  # where they stand in the caller's list

    def of(self, things: Sequence[T]) -> list[T]:
        return [things[place] for place in self.places]


class WorkAtHome(PostgresWork):
    """The `WorkStore` of this engine on a cluster."""

    def __init__(self, database: Database, decoder: Decoder) -> None:
        super().__init__(database, decoder)
        self._through = PostgresWork(database, decoder)
        self._works: dict[int, tuple[Database, PostgresWork]] = {}

    def _routes(self, shards: Sequence[int]) -> list[WorkRoute]:
        """One at least: who asks about nothing is answered, too."""
        routes: dict[PostgresWork, list[int]] = {} if shards else {self._through: []}
        for place, shard in enumerate(shards):
            routes.setdefault(self._work_of(shard), []).append(place)
        return [WorkRoute(work, places) for work, places in routes.items()]

    def _work_of(self, shard: int) -> PostgresWork:
        there = self._database.at_home(shard)
        if there is None:
            return self._through
        part = self._database.parts.of(shard)
        known = self._works.get(part)
        if known is None or known[0] is not there:
            known = self._works[part] = (there, PostgresWork(there, self._decoder))
        return known[1]

    async def _by_holding(
        self,
        holdings: Sequence[HeldShard],
        perform: Callable[[PostgresWork, list[HeldShard]], Awaitable[R]],
    ) -> list[R]:
        routes = self._routes([holding.shard for holding in holdings])
        return await every(routes, lambda route: perform(route.work, route.of(holdings)))

    # -- move -------------------------------------------------------------------------------------

    async def poll(self, holdings: Sequence[HeldShard]) -> PollResult:
        answers = await those_at_hand(
            self._routes([holding.shard for holding in holdings]),
            lambda route: route.work.poll(route.of(holdings)),
        )
        now = min((answer.now for answer in answers), default=None)
        shards = [shard for answer in answers for shard in answer.shards]
        return PollResult(shards=shards, now=now or await read_now(self._database), open=None)

    async def move(self, holdings: Sequence[HeldShard], *, limit: int) -> MoveResult:
        return joined_moves(
            await self._by_holding(holdings, lambda work, held: work.move(held, limit=limit))
        )

    async def move_and_begin(
        self,
        holdings: Sequence[HeldShard],
        *,
        limit: int,
        room: Mapping[str, int],
        batch: UUID,
        owner: str,
        grace: timedelta,
        window: timedelta,
        newest: bool = False,
    ) -> ArrivalResult:
        """All routes at once if each can have its share of the room; else one after the other."""

        async def arrive(route: WorkRoute, room: Mapping[str, int]) -> ArrivalResult:
            return await route.work.move_and_begin(
                route.of(holdings), limit=limit, room=room, batch=batch, owner=owner,
                grace=grace, window=window, newest=newest,
            )  # fmt: skip

        routes = self._routes([holding.shard for holding in holdings])
        if len(routes) == 1:
            return await arrive(routes[0], room)
        if min(room.values(), default=0) >= len(routes) * ROOM_TO_SHARE:
            shared = zip(routes, shares_of(room, len(routes)), strict=True)
            answers = await every(shared, lambda one: arrive(*one))
        else:
            answers, left = [], dict(room)
            for route in routes:
                answers.append(await arrive(route, left))
                for attempt in answers[-1].begun:
                    left[attempt.spec.queue] -= 1
        begun = [attempt for answer in answers for attempt in answer.begun]
        return ArrivalResult(moved=joined_moves([one.moved for one in answers]), begun=begun)

    # -- begin ------------------------------------------------------------------------------------

    async def begin(
        self,
        demands: Sequence[BeginRequest],
        *,
        batch: UUID,
        owner: str,
        grace: timedelta,
        window: timedelta,
        silent: timedelta,
        until: datetime | None = None,
    ) -> BeginResult:
        routes = self._routes([demand.lane.shard for demand in demands])
        answers = await every(
            routes,
            lambda route: route.work.begin(
                route.of(demands), batch=batch, owner=owner, grace=grace, window=window,
                silent=silent, until=until,
            ),
        )  # fmt: skip
        return answers[0] if len(answers) == 1 else joined_begins(answers)

    async def confirm(self, attempts: Sequence[BegunAttempt]) -> ConfirmResult:
        routes = self._routes([attempt.shard for attempt in attempts])
        answers = await every(routes, lambda route: route.work.confirm(route.of(attempts)))
        return ConfirmResult(
            now=min(answer.now for answer in answers),
            early={one for answer in answers for one in answer.early},
            gone={one for answer in answers for one in answer.gone},
            expired={one for answer in answers for one in answer.expired},
        )

    async def find_begun(self, shards: Collection[int], *, batch: UUID) -> Sequence[BegunAttempt]:
        chosen = sorted(shards)
        answers = await those_at_hand(
            self._routes(chosen), lambda route: route.work.find_begun(route.of(chosen), batch=batch)
        )
        return [attempt for answer in answers for attempt in answer]

    async def list_lanes(self, holdings: Sequence[HeldShard]) -> Mapping[Lane, datetime]:
        answers = await self._by_holding(holdings, lambda work, held: work.list_lanes(held))
        return {lane: at for answer in answers for lane, at in answer.items()}

    async def count_due(
        self, lanes: Sequence[Lane], *, limit: int, until: datetime | None = None
    ) -> int:
        answers = await every(
            self._routes([lane.shard for lane in lanes]),
            lambda route: route.work.count_due(route.of(lanes), limit=limit, until=until),
        )
        return min(sum(answers), limit)

    # -- record -----------------------------------------------------------------------------------

    async def finish(self, finishes: Sequence[FinishRequest], *, owner: str) -> Sequence[Recorded]:
        """Where a part's node is away its results are held. Errors: StoreUnavailable, if none was
        recorded."""
        routes = self._routes([finish.shard for finish in finishes])
        answers = await at_once(
            routes, lambda route: route.work.finish(route.of(finishes), owner=owner)
        )
        failures = [answer for answer in answers if isinstance(answer, StoreUnavailable)]
        if failures and len(failures) == len(answers):
            raise failures[0]
        recorded = [Recorded.HELD] * len(finishes)
        for route, answer in zip(routes, answers, strict=True):
            if not isinstance(answer, StoreUnavailable):
                for place, became in zip(route.places, answer, strict=True):
                    recorded[place] = became
        return recorded


def joined_moves(moves: Sequence[MoveResult]) -> MoveResult:
    """Of shards that have none in common."""
    return MoveResult(
        count=sum(moved.count for moved in moves),
        lanes={lane: at for moved in moves for lane, at in moved.lanes.items()},
        marks={shard: mark for moved in moves for shard, mark in moved.marks.items()},
        more=any(moved.more for moved in moves),
        now=min(moved.now for moved in moves),
    )


def joined_begins(answers: Sequence[BeginResult]) -> BeginResult:
    """Of lanes that have none in common. The time is the earliest: by then all was looked at."""
    begun = [attempt for answer in answers for attempt in answer.begun]
    return BeginResult(
        begun=sorted(begun, key=attrgetter("scheduled_at")),
        next_due={lane: at for answer in answers for lane, at in answer.next_due.items()},
        now=min(answer.now for answer in answers),
        refused={lane: at for answer in answers for lane, at in answer.refused.items()},
        reached={lane: at for answer in answers for lane, at in answer.reached.items()},
    )
