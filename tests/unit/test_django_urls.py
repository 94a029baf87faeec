"""The addresses of Django's databases, and the names of its tasks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from gnomon.django.backend import _priority_of
from gnomon.django.database_url import database_url
from gnomon.django.tasks_app import TasksApp, function_name

POSTGRES = {"ENGINE": "django.db.backends.postgresql", "NAME": "shop"}


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        (
            {"ENGINE": "django.db.backends.sqlite3", "NAME": "/var/shop.db"},
            "sqlite:////var/shop.db",
        ),
        ({"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}, "sqlite:///:memory:"),
        (
            {"ENGINE": "django.db.backends.sqlite3", "NAME": "file:memorydb_default?mode=memory"},
            "sqlite:///:memory:",
        ),
        (POSTGRES, "postgresql:///shop"),
        ({**POSTGRES, "HOST": "db", "PORT": 5433}, "postgresql://db:5433/shop"),
        (
            {**POSTGRES, "HOST": "db", "USER": "a b", "PASSWORD": "p@ss/w"},
            "postgresql://a%20b:p%40ss%2Fw@db/shop",
        ),
        (
            {**POSTGRES, "HOST": "/run/pg", "PORT": "5433", "USER": "ann"},
            "postgresql://ann@/shop?host=%2Frun%2Fpg&port=5433",
        ),
        (
            {**POSTGRES, "HOST": "db", "OPTIONS": {"sslmode": "require", "pool": True}},
            "postgresql://db/shop?sslmode=require",
        ),
    ],
)
def test_addresses(settings: dict[str, Any], url: str) -> None:
    assert url == database_url("default", settings)


def test_other_engines_are_refused() -> None:
    with pytest.raises(ImproperlyConfigured, match="the database 'default' is mysql"):
        database_url("default", {"ENGINE": "django.db.backends.mysql", "NAME": "shop"})


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ImproperlyConfigured, match="OPTIONS has 'ulr'; it may have url"):
        TasksApp("default", {"ulr": "sqlite:///x.db"})


def test_long_names_stay_apart() -> None:
    """At most 64 characters, and the whole path decides."""
    one, other = (SimpleNamespace(module_path=f"{start}{'.x' * 40}.tasks.remind") for start in "ab")
    names = function_name(one), function_name(other)  # type: ignore[arg-type]
    assert [64, 64] == [len(name) for name in names]
    assert names[0] != names[1]
    assert names[0][:-8] == names[1][:-8]
    assert "shop.tasks.remind" == function_name(SimpleNamespace(module_path="shop.tasks.remind"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("priority", "ours"), [(100, 0), (40, 3), (1, 5), (0, 5), (-1, 5), (-40, 7), (-100, 9)]
)
def test_priorities(priority: int, ours: int) -> None:
    """Django's highest is first."""
    assert ours == _priority_of(priority)
