"""SQL effects in the installation's own database: a login for them, and the table they write."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import sql

from gnomon.model.spec import Retry, Sql
from gnomon.scheduler import Request
from tests.fault.stage import Stage, request

# On a busy machine an attempt may take more than a second: it has a connection of its own, and that
# of Citus needs more of them. With less time than that all of them would end too late, for ever.
PATIENT = Retry(max=1_000)
TIMEOUT = timedelta(seconds=10)
EFFECT = "INSERT INTO effect SELECT $1 FROM pg_sleep(0.05)"
GRANTS = (
    "CREATE ROLE {1} LOGIN",
    "GRANT USAGE ON SCHEMA {0} TO {1}",
    "GRANT EXECUTE ON FUNCTION {0}.finish_ok, {0}.effect_done TO {1}",
    "INSERT INTO {0}.target_login VALUES ('own', {2})",
    "CREATE TABLE {0}.effect (n int)",
    "GRANT INSERT ON {0}.effect TO {1}",
)
EFFECTS = "SELECT count(*), count(DISTINCT n) FROM {0}.effect"


@contextmanager
def login_of(dsn: str) -> Iterator[str]:
    """The name of a login that `granted` makes; whatever it has by then is dropped."""
    name = f"sql_{uuid.uuid4().hex[:12]}"
    yield name
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(name)))
        owner.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def granted(owner: psycopg.Connection[Any], stage: Stage, login: str) -> str:
    """Make the login and its table; the address of the target."""
    names = (sql.Identifier(stage.schema), sql.Identifier(login), sql.Literal(login))
    for text in GRANTS:
        owner.execute(sql.SQL(text).format(*names))
    return stage.url.replace("postgres@", f"{login}@")


def wanted(name: str, n: int, *, key: str | None = None) -> Request:
    """An action that writes one row."""
    effect = Sql(target="own", statement=EFFECT, parameters=[n])
    return request(name, effect, key=key, retry=PATIENT, timeout=TIMEOUT)
