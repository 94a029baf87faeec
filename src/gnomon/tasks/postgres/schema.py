"""Making a task table, or mending one that is there, with all that belongs to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gnomon.model.errors import ConfigurationError, Unavailable
from gnomon.queries import quoted
from gnomon.tasks.postgres.connector import ConnectRefused, connect
from gnomon.tasks.postgres.control import NO_PARAMS, ControlConnection, StatementRefused
from gnomon.tasks.postgres.queries import QUERIES, literal, render
from gnomon.tasks.postgres.rows import as_bytes, is_true, text_of
from gnomon.tasks.postgres.table_access import TableAccess
from gnomon.tasks.postgres.wire import Statement, Wire

NOT_ALLOWED = "42501"
# Somebody else made the same at the same time, or has it locked.
MADE_MEANWHILE = frozenset({"23505", "42P06", "42P07", "42701", "42710", "42723", "40P01", "XX000"})
TRIES_MAX = 20  # others may be a step ahead at every step
TABLE_KINDS = (b"r", b"p")
INDEXES = ("plan", "due", "order", "expiry", "work")
VALUES = "gnomon_task_values_check"
STARTING_DATABASES = ("postgres", "template1")
COLUMNS = (
    "id", "parent", "plan", "start", "stop", "active", "live", "repeat", "timeout", "count", "max",
    "pid", "state", "delete", "drift", "header", "save", "string", "delimiter", "escape", "quote",
    "data", "error", "group", "input", "null", "output", "remote", "cron", "retry", "retried",
    "since",
)  # fmt: skip


class TableMaker:
    """Makes what is missing of one table."""

    def __init__(self, access: TableAccess, control: ControlConnection) -> None:
        self._access = access
        self._control = control
        self._done: list[str] = []

    async def make(self) -> Sequence[str]:
        """What was done. Errors: ConfigurationError, Unavailable."""
        for trial in range(TRIES_MAX):
            try:
                await self._make()
                break
            except StatementRefused as exc:
                if exc.sqlstate not in MADE_MEANWHILE or trial == TRIES_MAX - 1:
                    raise ConfigurationError(
                        f"tasks {self._access.entry.title}", f"cannot be made: {exc.words}"
                    ) from None
        return self._done

    async def _make(self) -> None:
        await self._check_login()
        there = await self._look()
        if not there["schema"]:
            await self._do("create_schema", f"schema {self._access.entry.schema}")
        if not there["task"]:
            if not there["state"]:
                await self._do("create_type", "type state")
            await self._do("create_table", f"table {self._access.entry.table}")
        await self._make_columns()
        await self._make_parts()
        if not there["owner"]:
            await self._do("create_owner", "table gnomon_task_owner")
        if not there["waiting"]:
            await self._do("create_waiting", f"view {self._access.entry.table}_waiting")

    async def _check_login(self) -> None:
        wire = await self._control.wire()
        if wire.parameter("is_superuser") == "on" and not self._access.entry.superuser:
            raise ConfigurationError(
                f"tasks {self._access.entry.title}",
                f"the user {self._access.entry.user} is a superuser, and so would be everybody who "
                'may insert a task: give another user, or say "superuser": true',
            )

    async def _look(self) -> Mapping[str, bool]:
        """Which parts of the table are there, by name. Errors: ConfigurationError, if it is
        none."""
        names = self._access.names
        (row,) = await self._control.rows(
            self._access.statements["look"],
            as_bytes(names.qualified),
            as_bytes(f"{quoted(names.schema)}.gnomon_task_owner"),
            as_bytes(quoted(names.schema)),
            as_bytes(f"{quoted(names.schema)}.state"),
            as_bytes(names.waiting),
        )
        if row["kind"] is not None and row["kind"] not in TABLE_KINDS:
            problem = f"{names.qualified} is there, and is not a table"
            raise ConfigurationError(f"tasks {self._access.entry.title}", problem)
        return {part: is_true(value) for part, value in row.items()}

    async def _make_columns(self) -> None:
        columns = await self._columns()
        missing = [name for name in COLUMNS if name not in columns]
        if missing:
            await self._do("add_columns", f"columns {', '.join(missing)}")
            columns = await self._columns()
        if any(_is_unusable(written) for written in columns.values()):
            await self._do("set_defaults", "defaults")

    async def _columns(self) -> Mapping[str, str]:
        """The columns with their defaults; the access learns of the type of one."""
        access = self._access
        rows = await self._control.rows(
            access.statements["look_columns"], as_bytes(access.names.qualified)
        )
        for row in rows:
            if row["attname"] == b"state":
                access.know(text_of(row["type"]))
        return {text_of(row["attname"]): text_of(row["written_default"]) for row in rows}

    async def _make_parts(self) -> None:
        names = self._access.names
        rows = await self._control.rows(
            self._access.statements["look_parts"],
            as_bytes(names.qualified),
            as_bytes(quoted(names.schema)),
        )
        there = {text_of(row["name"]) for row in rows}
        for index in INDEXES:
            name = f"{names.table}_gnomon_{index}_idx"
            if name not in there:
                await self._do(f"create_{index}_index", f"index {name}")
        for function in ("next", "again", "values"):
            if f"gnomon_task_{function}" not in there:
                await self._do(f"create_{function}", f"function gnomon_task_{function}")
        if VALUES not in there:
            await self._do("create_check_of_values", f"trigger {VALUES}")
        await self._make_hint(there)

    async def _make_hint(self, there: set[str]) -> None:
        """Without it the table is polled; so it may be missing."""
        try:
            if "gnomon_task_update_hint" not in there:
                await self._do("create_hint", "function gnomon_task_hint")
                await self._do("create_hint_of_updates", "trigger gnomon_task_update_hint")
            if "gnomon_task_hint" not in await self._triggers():
                await self._do("create_hint_of_inserts", "trigger gnomon_task_hint")
        except ConfigurationError:
            self._done.append("no hint: inserts are found by polling")

    async def _triggers(self) -> set[str]:
        rows = await self._control.rows(self._access.statements["listen_channel"])
        return {"gnomon_task_hint"} if rows else set()

    async def _do(self, name: str, what: str) -> None:
        sql = render(QUERIES[name].sql, self._access.names)
        try:
            await self._control.together([(Statement(b"", sql.encode()), NO_PARAMS)])
        except StatementRefused as exc:
            if exc.sqlstate == NOT_ALLOWED:
                raise self._not_allowed(what, exc.words) from None
            raise
        self._done.append(f"created {what}" if name != "set_defaults" else "mended defaults")

    def _not_allowed(self, what: str, words: str) -> ConfigurationError:
        entry = self._access.entry
        return ConfigurationError(
            f"tasks {entry.title}",
            f"the user {entry.user} may not create {what} in database {entry.data}: {words}",
        )


def _is_unusable(written: str) -> bool:
    """Whether a default is pg_task's own, which fails where pg_task is not loaded."""
    return "current_setting('pg_task." in written and ", true)" not in written


class DatabaseMaker:
    """Makes a missing database, user and schema, with the login that was given for that."""

    def __init__(self, access: TableAccess, options: Mapping[str, str]) -> None:
        self._access = access
        self._options = options

    async def make(self) -> Sequence[str]:
        """What was made. Errors: ConfigurationError, Unavailable."""
        entry = self._access.entry
        wire = await self._connect()
        control = ControlConnection(lambda: self._options, wire=wire)
        try:
            (row,) = await control.rows(
                self._access.statements["look_role"], as_bytes(entry.user), as_bytes(entry.data)
            )
            done = []
            if not is_true(row["role"]):
                await self._do(control, self._role_sql(wire), f"the user {entry.user}")
                done.append(f"created user {entry.user}")
            if not is_true(row["database"]):
                sql = QUERIES["create_database"].sql.replace("/*database*/task", quoted(entry.data))
                await self._do(control, self._with_role(sql), f"the database {entry.data}")
                done.append(f"created database {entry.data}")
            return done
        finally:
            control.close()

    async def _connect(self) -> Wire:
        """To the login's own database, or, while that is missing, to one that always is there."""
        refused: ConnectRefused | None = None
        for database in (None, *STARTING_DATABASES):
            options = dict(self._options)
            if database is not None:
                options["dbname"] = database
            try:
                return await connect(options)
            except ConnectRefused as exc:
                refused = refused or exc
        assert refused is not None
        raise Unavailable(f"no connection to the server of the task table: {refused.detail}")

    def _role_sql(self, wire: Wire) -> str:
        password = self._access.entry.password
        if password is None:
            return self._with_role(QUERIES["create_role"].sql)
        # Only its verifier is sent: statements are logged.
        verifier = wire.encrypted(password.reveal(), self._access.entry.user)
        sql = QUERIES["create_role_with_password"].sql.replace("/*password*/''", literal(verifier))
        return self._with_role(sql)

    def _with_role(self, sql: str) -> str:
        return sql.replace("/*role*/task", quoted(self._access.entry.user))

    async def _do(self, control: ControlConnection, sql: str, what: str) -> None:
        try:
            await control.simple(sql)
        except StatementRefused as exc:
            if exc.sqlstate in MADE_MEANWHILE:
                return
            login = self._options.get("user", "the login")
            raise ConfigurationError(
                f"tasks {self._access.entry.title}",
                f"{what} is missing, and {login} may not create it: {exc.words}",
            ) from None
