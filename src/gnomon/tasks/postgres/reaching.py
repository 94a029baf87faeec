"""Where the column `remote` may lead to, and the way there.

Off unless the operator says otherwise. With a list, only to its servers, strictly read. `free` is
for installations that trust whoever may insert: any server that libpq can reach; but nothing of
this process is lent out: no files of its, and without a password only where the table's own login
may be a superuser, as with pg_task.
"""

from __future__ import annotations

from gnomon.model.conninfo import (
    ConninfoPolicy,
    ConninfoRefused,
    admit_conninfo,
    parse_conninfo,
)
from gnomon.model.task import GroupKey, RemoteRefused
from gnomon.model.task.text import plain_error
from gnomon.tasks.postgres.connecting import ConnectRefused, connect
from gnomon.tasks.postgres.place import Place
from gnomon.tasks.postgres.wire import Wire

OFF = "remote is switched off for this table"
NO_PASSWORD = plain_error(
    "password is required", "Non-superusers must provide a password in the connection string."
)
NO_FILE = "/dev/null/none"  # libpq complains of a file that is there and is not plain
# They name files and services of this machine.
OF_THIS_PROCESS = frozenset(
    {
        "service", "servicefile", "passfile", "sslkey", "sslcert", "sslrootcert", "sslcrl",
        "sslcrldir", "sslkeylogfile", "sslpassword", "krbsrvname", "gssdelegation",
    }
)  # fmt: skip


async def reach(place: Place, key: GroupKey) -> Wire:
    """A connection to where a group is sent. Errors: RemoteRefused."""
    assert key.remote is not None
    options = admitted(place, key.remote)
    # Whatever it calls itself, its server is to see whose task it is.
    options.pop("fallback_application_name", None)
    options["application_name"] = place.application_name(key.group)
    options["client_encoding"] = "UTF8"
    options["options"] = f"{options.get('options', '')} {place.task_options(key.group)}".strip()
    options.setdefault("gssencmode", "disable")
    try:
        return await connect(options)
    except ConnectRefused as exc:
        raise RemoteRefused(plain_error(exc.step, exc.detail)) from None


def admitted(place: Place, remote: str) -> dict[str, str]:
    """The options of a `remote` that is allowed. Errors: RemoteRefused."""
    policy = place.entry.remote
    if policy == "off":
        raise RemoteRefused(plain_error(OFF))
    try:
        given = dict(parse_conninfo(remote))
    except ConninfoRefused as exc:
        raise RemoteRefused(plain_error("PQconninfoParse failed", str(exc))) from None
    if not given.get("password") and not place.entry.superuser:
        raise RemoteRefused(NO_PASSWORD)
    if policy == "free":
        return _free(given)
    assert isinstance(policy, tuple)
    return _listed(given, remote, policy)


def _free(given: dict[str, str]) -> dict[str, str]:
    for name in sorted(given.keys() & OF_THIS_PROCESS):
        raise RemoteRefused(plain_error(f'the connection option "{name}" is not allowed'))
    return {**given, "passfile": NO_FILE}


def _listed(given: dict[str, str], remote: str, patterns: tuple[str, ...]) -> dict[str, str]:
    """Only what the list names: `host`, `host:port`, `host/database`, `host:port/database`."""
    hosts = tuple(
        place
        for place, _, database in (pattern.partition("/") for pattern in patterns)
        if database in ("", given.get("dbname"))
    )
    policy = ConninfoPolicy(mode="listed", hosts=hosts, sslmode_min="disable")
    try:
        found = admit_conninfo(remote, policy)
    except ConninfoRefused as exc:
        raise RemoteRefused(plain_error("remote is not allowed", str(exc))) from None
    settings = dict(found.settings())
    if "sslmode" not in given:
        settings["sslmode"] = "prefer"  # libpq's own
    return {**settings, "passfile": NO_FILE}
