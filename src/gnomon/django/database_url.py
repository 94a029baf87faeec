"""The address of one of Django's databases, as Gnomon writes it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from django.core.exceptions import ImproperlyConfigured

# Of a database's OPTIONS: what the server's library takes. The others are for Django's own driver.
_PASSED_ON = frozenset(
    {"sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "connect_timeout", "passfile"}
)


def database_url(alias: str, settings: Mapping[str, Any]) -> str:
    """`postgresql://…` or `sqlite:///…`."""
    engine = str(settings["ENGINE"]).rpartition(".")[2]
    match engine:
        case "sqlite3":
            return _sqlite_url(str(settings["NAME"]))
        case "postgresql" | "postgis":
            return _postgres_url(settings)
    raise ImproperlyConfigured(
        f"Gnomon works on PostgreSQL and SQLite, and the database {alias!r} is {engine}: name one "
        'of its own in TASKS, "OPTIONS": {"url": "postgresql://…"}'
    )


def _sqlite_url(name: str) -> str:
    if ":memory:" in name or "mode=memory" in name:
        return "sqlite:///:memory:"
    return f"sqlite:///{Path(name).absolute()}"


def _postgres_url(settings: Mapping[str, Any]) -> str:
    options = settings.get("OPTIONS", {})
    query = {name: str(value) for name, value in options.items() if name in _PASSED_ON}
    host, port = str(settings.get("HOST") or ""), settings.get("PORT")
    if host.startswith("/"):  # the folder of a socket
        query["host"], host = host, ""
    if port and not host:
        query["port"], port = str(port), ""
    user = quote(str(settings.get("USER") or ""), safe="")
    if settings.get("PASSWORD"):
        user += ":" + quote(str(settings["PASSWORD"]), safe="")
    place = f"{user}@{host}" if user else host
    place = f"{place}:{port}" if port else place
    url = f"postgresql://{place}/{quote(str(settings.get('NAME') or ''), safe='')}"
    return f"{url}?{urlencode(query)}" if query else url
