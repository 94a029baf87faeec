"""The handlers of reports: how it goes, how it went, what failed, what will be due."""

from __future__ import annotations

import msgspec

from gnomon.contracts.store import InstallationFigures
from gnomon.gateways.rest.call import Call
from gnomon.model.duration import parse_duration
from gnomon.model.errors import InvalidSpec
from gnomon.model.function import FunctionRecord
from gnomon.model.load import LoadUnit
from gnomon.scheduler.attempt_history import History
from gnomon.scheduler.failure_groups import FailureReport
from gnomon.scheduler.load_report import LoadReport


class FunctionList(msgspec.Struct):
    """What living programs serve, by name."""

    functions: list[FunctionRecord]


async def list_functions(call: Call) -> FunctionList:
    """Functions that actions may call, and with which arguments."""
    return FunctionList(call.sight.see_functions(await call.services.scheduler.reports.functions()))


async def show_figures(call: Call) -> InstallationFigures:
    """How much waits, is overdue, runs and has died, by queue and stage."""
    return await call.services.scheduler.reports.figures()


async def list_failures(call: Call) -> FailureReport:
    """Dead and failing actions, grouped by what failed."""
    query = call.query
    scheduler = call.services.scheduler
    report = await scheduler.reports.failures(
        queue=query.one("queue"), limit=query.number("limit", 50)
    )
    if call.sight.is_whole:
        return report
    newest = [group.ids[0] for group in report.groups]
    return call.sight.see_failures(report, await scheduler.store.actions.get_many(newest))


async def show_history(call: Call) -> History:
    """What was counted of attempts: outcomes, lateness, duration over time."""
    query = call.query
    step = query.one("step")
    return await call.services.scheduler.reports.history(
        since=query.moment("from"),
        until=query.moment("to"),
        step=None if step is None else parse_duration(step, "query.step"),
        queue=query.one("queue"),
    )


async def show_load(call: Call) -> LoadReport:
    """What will be due in each second, minute, hour or day ahead, and herds in it."""
    query = call.query
    return await call.services.scheduler.reports.load(
        since=query.moment("from"),
        unit=_unit(query.one("unit") or LoadUnit.MINUTE),
        count=query.number("count", 60),
    )


def _unit(text: str) -> LoadUnit:
    try:
        return LoadUnit(text)
    except ValueError:
        known = ", ".join(LoadUnit)
        raise InvalidSpec("query.unit", f"must be one of {known}", got=text) from None
