"""`gnomon up --demo`: a handful of actions, so that something is seen at once."""

from __future__ import annotations

from datetime import timedelta

from gnomon.app import App
from gnomon.cli.output import say
from gnomon.executors.python import AttemptContext
from gnomon.model.errors import GnomonError
from gnomon.model.spec import Cron, Mock, Periodic, Python, Retry, Spec
from gnomon.scheduler import Request

FUNCTION = "demo.greet"
SECOND = timedelta(seconds=1)


def declare_functions(app: App) -> None:
    """The Python function that the demo calls."""

    @app.action(name=FUNCTION)
    async def greet(attempt: AttemptContext, name: str) -> str:
        say(f"demo: hello {name}, occurrence {attempt.occurrence_no} of {attempt.id}")
        return f"hello {name}"


def demo_requests() -> list[Request]:
    """One of each kind."""
    labels = {"demo": "yes"}
    stubborn = Retry(max=5, min_period=SECOND, max_period=4 * SECOND, scale=1, back_off=2)
    greet = Python(function=FUNCTION, kwargs={"name": "world"})
    tick = Mock(answer="tick")
    specs = {
        "demo-once": Spec(action=Mock(answer="done"), labels=labels),
        "demo-retried": Spec(action=Mock(fail=3), retry=stubborn, labels=labels),
        "demo-hopeless": Spec(action=Mock(fail=99), retry=Retry(max=1), labels=labels),
        "demo-greeting": Spec(
            action=greet, policy=Periodic(period=5 * SECOND), occurrences_max=12, labels=labels
        ),
        "demo-minutely": Spec(action=tick, policy=Cron(expression="* * * * *"), labels=labels),
    }
    return [Request(id=id, spec=spec) for id, spec in specs.items()]


async def schedule_demo(app: App) -> None:
    """Schedule them; those that are there already stay as they are."""
    results = await app.scheduler.create_many(demo_requests())
    count = sum(not isinstance(result, GnomonError) for result in results)
    say(f"demo: {count} actions scheduled; see `gnomon action list --label demo=yes`")
