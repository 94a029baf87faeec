"""The register of stages."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

from gnomon.contracts.store import LOCAL
from gnomon.contracts.store.entities import StageLane
from gnomon.contracts.store.register import StageRecord
from gnomon.stores.sqlite.entities.offers import freeing, merged, replace_row
from gnomon.stores.sqlite.entities.rows import Connection, Parameters, read_rows
from gnomon.stores.sqlite.entities.sweeps import start_sweep
from gnomon.stores.sqlite.entities.verbs import EntityVerbs
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.rows import duration_us, moment

RENAMES = ("rename_stage", "rename_queue", "rename_states", "rename_sweeps", "rename_outbox")


class SqliteRegister(EntityVerbs):
    """The part of the `EntityStore` that knows which stages there are."""

    async def declare(
        self,
        stages: Mapping[str, int],
        *,
        formerly: Mapping[str, str],
        backfill: Collection[str],
        settle: Mapping[str, timedelta],
        own_echo: Collection[str],
    ) -> Mapping[str, int | None]:
        def call(connection: Connection) -> dict[str, int | None]:
            now_us = self._now_us()
            known = {stage: _known(connection, stage, formerly.get(stage)) for stage in stages}
            for stage, revision in stages.items():
                row: Parameters = {
                    "stage": stage,
                    "revision": revision,
                    "now": now_us,
                    "settle": duration_us(settle.get(stage, timedelta(0))),
                    "own_echo": stage in own_echo,
                }
                connection.execute(SQL["declare"], row)
                before = known[stage]
                if before is None and stage in backfill:
                    start_sweep(connection, stage, _reason(revision), now_us)
                elif before is not None and before < revision:
                    start_sweep(connection, stage, _reason(revision), now_us)
                    self._free(connection, stage, _reason(revision), now_us)
            return known

        return await self._runner.write(call)

    def _free(self, connection: Connection, stage: str, reason: str, now_us: int) -> None:
        """What failed or looped did so under other code."""
        for row in read_rows(connection, "parked_of_stage", {"stage": stage}):
            offer = freeing(stage, reason, self._entropy.token(), StageLane.BACKGROUND)
            replace_row(connection, row, merged(row, offer, now_us))
        connection.execute(SQL["free_saves_of_stage"], {"stage": stage, "now": now_us})

    async def stages(self) -> Sequence[StageRecord]:
        return await self._runner.browse(
            lambda connection: [
                StageRecord(
                    name=name,
                    revision=revision,
                    first_seen_at=moment(first_seen_at),
                    last_seen_at=moment(last_seen_at),
                    waiting=waiting,
                    background=background,
                    parked=parked,
                    sleeping=sleeping,
                    settle=timedelta(microseconds=settle),
                    own_echo=bool(own_echo),
                )
                for (
                    name, revision, first_seen_at, last_seen_at, waiting, background, parked,
                    sleeping, settle, own_echo,
                ) in connection.execute(SQL["stages"])
            ]
        )  # fmt: skip

    async def forget(self, stage: str, *, actor: str = LOCAL) -> int:
        def call(connection: Connection) -> int:
            gone = {"stage": stage}
            rows: int = connection.execute(SQL["forget_queue"], gone).rowcount
            states: int = connection.execute(SQL["forget_states"], gone).rowcount
            for query in ("forget_sweeps", "forget_outbox", "forget"):
                connection.execute(SQL[query], gone)
            self._audit(connection, "forget_stage", actor, stage)
            return rows + states

        return await self._runner.write(call)


def _known(connection: Connection, stage: str, old: str | None) -> int | None:
    """The revision known before, under this name or, if that is new, under the former one."""
    revision = _revision(connection, stage)
    if revision is not None or old is None:
        return revision
    revision = _revision(connection, old)
    if revision is not None:
        for query in RENAMES:
            connection.execute(SQL[query], {"stage": stage, "old": old})
    return revision


def _revision(connection: Connection, stage: str) -> int | None:
    found = connection.execute(SQL["known_revision"], {"stage": stage}).fetchone()
    return None if found is None else int(found[0])


def _reason(revision: int) -> str:
    return f"sweep r{revision}"
