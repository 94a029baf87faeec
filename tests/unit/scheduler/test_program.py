"""What is declared in code: the decorators, and what they refuse when a module is imported."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import gnomon
from gnomon.model.declaration import KNOWN_MAX, next_set
from gnomon.model.spec import Cron, Once, Periodic
from tests.unit.scheduler.test_admission import NOW

ALIVE = timedelta(seconds=30)


@pytest.fixture
def app() -> gnomon.App:
    return gnomon.App("sqlite:///:memory:")


def test_a_cron_is_declared_above_an_action(app: gnomon.App) -> None:
    """The options of the function count, and those of the declaration before them."""

    @app.cron("0 9 * * 1-5", timezone="Europe/Berlin", queue="night")
    @app.action(retry=3, timeout="5m", queue="day")
    async def report(ctx: gnomon.Attempt) -> None: ...

    (declared,) = app.program.declarations.values()
    spec = declared.request.spec
    assert "report" == declared.request.id
    assert Cron(expression="0 9 * * 1-5", timezone="Europe/Berlin") == spec.policy
    assert (3, timedelta(minutes=5), "night") == (spec.retry.max, spec.timeout, spec.queue)
    assert Once() == app.request(report()).spec.policy


def test_a_period_is_declared_alone(app: gnomon.App) -> None:
    """The decorator declares the function, too; arguments are given once."""

    @app.every("5m", id="ping-ann", args=["ann"], kwargs={"times": 2})
    def ping(ctx: gnomon.Attempt, who: str, times: int) -> None: ...

    (declared,) = app.program.declarations.values()
    spec = declared.request.spec
    assert "ping-ann" == declared.request.id
    assert Periodic(period=timedelta(minutes=5)) == spec.policy
    assert ping("ann", times=2) == spec.action
    assert ("ping",) == app.registry.names


def test_one_function_may_be_declared_twice(app: gnomon.App) -> None:
    """Under two ids."""

    @app.every("5m", id="a", args=["a"])
    @app.every("5m", id="b", args=["b"])
    def ping(ctx: gnomon.Attempt, who: str) -> None: ...

    assert {"a", "b"} == app.program.declarations.keys()


BAD = {
    '@app.cron("61 * * * *")': "spec.policy.expression",
    '@app.cron("0 9 * * *", timezone="Europe/Berln")': "Europe/Berln",
    '@app.cron(expression="0 9 * * *")': "cron() missing 1 required positional argument",
    '@app.cron("0 9 * * *", tz="UTC")': "cron() has no option 'tz'; did you mean 'timezone'?",
    '@app.every("5x")': "every: must be a duration",
    '@app.every("0s")': "spec.policy.period: must be at least 1 s",
    '@app.every("5m", retires=3)': "every() has no option 'retires'; did you mean 'retry'?",
    '@app.every("5m", at="2026-12-24T18:00Z")': "every() has no option 'at'",
    '@app.every("5m", id="a b")': "id: must be 1 to 200 characters",
    '@app.every("5m", args="ann")': "every(): args is a list",
    '@app.every("5m", args=[1])': "@app.every: report(): too many positional arguments; give what",
    '@app.every("5m")\n@app.every("6m")': "action report: is declared twice: give one of them",
    "@app.every": "every: must be a duration",
    '@app.action\n@app.every("5m")': "write @app.action below",
    '@other.every("5m")\n@app.action': "is of another app",
}


@pytest.mark.parametrize("decorators", BAD)
def test_what_is_wrong_is_told_at_import(app: gnomon.App, decorators: str) -> None:
    """With what to write, before any worker starts."""
    code = f"{decorators}\ndef report(ctx): ..."
    with pytest.raises((gnomon.GnomonError, TypeError)) as refused:
        exec(code, {"app": app, "other": gnomon.App()})
    assert BAD[decorators] in str(refused.value)


def test_arguments_that_are_missing_are_asked_for(app: gnomon.App) -> None:
    """A recurring call has nobody who could give them later."""
    with pytest.raises(TypeError, match=r"missing a required argument: 'who'; give what it needs"):

        @app.every("5m")
        def ping(ctx: gnomon.Attempt, who: str) -> None: ...


def test_a_program_is_called_after_the_module_of_its_app(tmp_path: Path) -> None:
    """However it is started; unless it says its name."""
    (tmp_path / "shop.py").write_text(
        "import gnomon\napp = gnomon.App()\nnamed = gnomon.App(program='mail')\n"
        "if __name__ == '__main__': print(app.program.name, named.program.name)\n"
    )
    imported = "import shop; print(shop.app.program.name, 'mail')"
    for command in (["shop.py"], ["-m", "shop"], ["-c", imported]):
        shown = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert "shop mail\n" == shown.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"program": "my shop"}, "program: must be 1 to 64 characters"),
        ({"removed": "forget"}, "removed: must be 'pause' or 'delete' or 'keep'"),
    ],
)
def test_a_program_is_named_and_removes_as_it_may(options: dict[str, str], message: str) -> None:
    """Anything else is told where the app is made."""
    with pytest.raises(gnomon.ConfigurationError, match=message):
        gnomon.App(**options)  # type: ignore[arg-type]


# -- which set is the current one -----------------------------------------------------------------


def test_a_living_set_is_written_seldom() -> None:
    """Many workers say every few seconds that they live; a few of them are enough."""
    first = next_set(None, "a", now=NOW, alive_for=ALIVE)

    assert first is not None
    assert first is next_set(first, "a", now=NOW + ALIVE / 5, alive_for=ALIVE)
    later = next_set(first, "a", now=NOW + ALIVE / 3, alive_for=ALIVE)
    assert later is not None
    assert (1, NOW + ALIVE / 3) == (later.set_no, later.seen_at)


def test_who_declares_nothing_neither_wins_nor_lives() -> None:
    """A process that did not import the declarations: it does not pause what others declare, and
    is no reason for them to wait."""
    declared = next_set(None, "a", now=NOW, alive_for=ALIVE)
    during = next_set(declared, "", now=NOW, alive_for=ALIVE)
    after = next_set(declared, "", now=NOW + 2 * ALIVE, alive_for=ALIVE)
    back = next_set(after, "a", now=NOW + 2 * ALIVE, alive_for=ALIVE)

    assert declared is during
    assert after is not None
    assert back is not None
    assert (2, "") == (after.set_no, after.fingerprint)
    assert (3, "a") == (back.set_no, back.fingerprint)


def test_what_is_remembered_of_a_program_is_bounded() -> None:
    """A set that was seen a hundred releases ago counts as new again."""
    current = None
    for number in range(3 * KNOWN_MAX):
        current = next_set(current, f"set-{number}", now=NOW, alive_for=ALIVE)
    assert current is not None
    assert KNOWN_MAX == len(current.known)
    assert f"set-{3 * KNOWN_MAX - 1}" == current.known[-1]
