"""A `remote` as it may be shown."""

from __future__ import annotations

from gnomon.model.conninfo import ConninfoRefused, parse_conninfo
from gnomon.model.secret import HIDDEN

_SHOWN = ("host", "hostaddr", "port", "dbname", "user", "sslmode", "application_name")


def remote_shown(text: str) -> str:
    """What names the server and the login, and nothing that could be a password."""
    try:
        options = parse_conninfo(text)
    except ConninfoRefused:
        return HIDDEN
    parts = [
        f"{name}={value if name in _SHOWN else HIDDEN}" for name, value in options.items() if value
    ]
    return " ".join(parts)
