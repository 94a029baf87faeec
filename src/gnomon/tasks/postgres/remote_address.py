"""Where the column `remote` may lead to, and the way there.

Off unless the operator says otherwise. With a list, only to its servers, strictly read. `free` is
for installations that trust whoever may insert: any server that libpq can reach by TCP.

Nothing of this process is lent out: no file, socket, ticket or certificate of its. So a password
must be there, and the server must have asked for it: where it lets anybody in who comes from this
machine, it would be this machine that was let in. Only where the table's own login may be a
superuser none of this holds, as with pg_task.
"""

from __future__ import annotations

from psycopg import pq

from gnomon.model.errors import InvalidRequest
from gnomon.model.task import GroupKey, RemoteRefused
from gnomon.model.task.remote import PORT_DEFAULT, RemoteTarget, admit_remote
from gnomon.model.task.text import plain_error
from gnomon.tasks.postgres.connector import ConnectRefused, connect
from gnomon.tasks.postgres.conninfo import ConninfoRefused, read_conninfo
from gnomon.tasks.postgres.table_access import TableAccess
from gnomon.tasks.postgres.wire import Wire

OFF = "remote is switched off for this table"
NO_PASSWORD = plain_error(
    "password is required", "Non-superusers must provide a password in the connection string."
)
NOT_ASKED = plain_error(
    "password is required",
    "Non-superuser cannot connect if the server does not request a password.",
    hint="Target server's authentication method must be changed.",
)
NO_SOCKET = plain_error("remote is not allowed", "Non-superusers must name a host to connect to.")
UNMET = "authentication method requirement"  # libpq's words, when the server asks for less
NO_FILE = "/dev/null/none"  # libpq complains of a file that is there and is not plain
# They name files and services of this machine.
OF_THIS_PROCESS = frozenset(
    {
        "service", "servicefile", "passfile", "sslkey", "sslcert", "sslrootcert", "sslcrl",
        "sslcrldir", "sslkeylogfile", "sslpassword", "krbsrvname", "gssdelegation",
    }
)  # fmt: skip
# They say as whom to come, if not by the password.
BESIDE_THE_PASSWORD = frozenset(
    {
        "gssencmode", "gsslib", "sslcertmode", "require_auth", "requirepeer", "oauth_issuer",
        "oauth_client_id", "oauth_client_secret", "oauth_scope",
    }
)  # fmt: skip
# What libpq would offer of its own accord, or take from the environment.
NOTHING_OF_OURS = {"passfile": NO_FILE, "gssencmode": "disable"}
NOT_FROM_OUR_ENVIRONMENT = {"port": str(PORT_DEFAULT), "sslmode": "prefer"}  # libpq's own
NOR_FROM_16_ON = {"require_auth": "password,md5,scram-sha-256", "sslcertmode": "disable"}
BEFORE_16 = {"sslcert": NO_FILE, "sslkey": NO_FILE}


async def reach(access: TableAccess, key: GroupKey) -> Wire:
    """A connection to where a group is sent. Errors: RemoteRefused."""
    assert key.remote is not None
    options = admitted(access, key.remote)
    # Whatever it calls itself, its server is to see whose task it is.
    options.pop("fallback_application_name", None)
    options["application_name"] = access.application_name(key.group)
    options["client_encoding"] = "UTF8"
    options["options"] = f"{options.get('options', '')} {access.task_options(key.group)}".strip()
    options.setdefault("gssencmode", "disable")
    try:
        wire = await connect(options)
    except ConnectRefused as exc:
        if UNMET in exc.detail:
            raise RemoteRefused(NOT_ASKED) from None
        raise RemoteRefused(plain_error(exc.step, exc.detail)) from None
    if not wire.used_password and not access.entry.superuser:
        wire.close()
        raise RemoteRefused(NOT_ASKED)
    return wire


def admitted(access: TableAccess, remote: str) -> dict[str, str]:
    """The options of a `remote` that is allowed. Errors: RemoteRefused."""
    policy = access.entry.remote
    if policy == "off":
        raise RemoteRefused(plain_error(OFF))
    try:
        given = read_conninfo(remote)
    except ConninfoRefused as exc:
        raise RemoteRefused(plain_error("PQconninfoParse failed", str(exc))) from None
    if access.entry.superuser:
        own: dict[str, str] = {"passfile": NO_FILE}
    elif not given.get("password"):
        raise RemoteRefused(NO_PASSWORD)
    else:
        own = {**NOTHING_OF_OURS, **(NOR_FROM_16_ON if pq.version() >= 160_000 else BEFORE_16)}
    if policy == "free":
        return {**_free(given, is_trusted=access.entry.superuser), **own}
    assert isinstance(policy, tuple)
    return {**_listed(given, policy), **own}


def _free(given: dict[str, str], *, is_trusted: bool) -> dict[str, str]:
    closed = OF_THIS_PROCESS if is_trusted else OF_THIS_PROCESS | BESIDE_THE_PASSWORD
    for name in sorted(given.keys() & closed):
        raise RemoteRefused(plain_error(f'the connection option "{name}" is not allowed'))
    hosts = (given.get("host") or given.get("hostaddr") or "").split(",")
    if not is_trusted and any(not host or host.startswith(("/", "@")) for host in hosts):
        raise RemoteRefused(NO_SOCKET)
    return given


def _listed(given: dict[str, str], patterns: tuple[str, ...]) -> dict[str, str]:
    try:
        admit_remote(given, [RemoteTarget.read(pattern) for pattern in patterns])
    except InvalidRequest as exc:
        raise RemoteRefused(plain_error("remote is not allowed", str(exc))) from None
    return {**NOT_FROM_OUR_ENVIRONMENT, **given}
