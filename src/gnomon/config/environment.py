"""The environment: `GNOMON_WORKER_LEASE` is `worker.lease`, and no `GNOMON_…` is passed over.

A variable that nobody reads would be a setting that somebody believes in: it is an error, with the
name that comes nearest.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from types import MappingProxyType

from gnomon.model.errors import ConfigurationError

PREFIX = "GNOMON_"
FILE_VARIABLE = "GNOMON_CONFIG"
FOLDER_VARIABLE = "GNOMON_DATA"  # where the default SQLite file is; else the current folder
TOKEN_VARIABLE = "GNOMON_TOKEN"  # noqa: S105 - its name, not its value

# All variables that are no settings, and what they are for.
OTHER_VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        FILE_VARIABLE: "the file with settings, if it is not `gnomon.toml` in the current folder",
        FOLDER_VARIABLE: "the folder of the default SQLite file",
        TOKEN_VARIABLE: "the token with which the command line calls a server",
        "GNOMON_ADMIN_URL": "the login with which `gnomon target setup` makes roles",
    }
)
# Those that begin so belong to the tests of Gnomon itself.
TEST_PREFIXES = ("GNOMON_TEST_", "GNOMON_FAULT_")
# What Kubernetes sets in every container beside a service that is called gnomon, or gnomon-server.
_SERVICE_LINK = re.compile(
    r"GNOMON(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")
_SECOND_UNDERSCORE = re.compile(r"(?<=[A-Z0-9])__(?=[A-Z])")


def variable_of(path: str) -> str:
    """The environment variable of a setting."""
    return f"{PREFIX}{path.replace('.', '_')}".upper()


def given_settings(
    environ: Mapping[str, str],
    paths: Collection[str],
    *,
    file_only: Collection[str],
    secrets: Collection[str],
) -> Iterator[tuple[str, str, str]]:
    """The settings of these paths that the environment has, as (path, value, variable); two
    underscores are read as one. `file_only`: sections that cannot be given here; `secrets`:
    variables that hold one. Errors: ConfigurationError."""
    by_variable = {variable_of(path): path for path in paths}
    seen: dict[str, str] = {}
    for variable, value in sorted(environ.items()):
        if not variable.startswith(PREFIX) or variable in secrets or _is_other(variable):
            continue
        if _is_service_link(variable, value):
            continue
        path = by_variable.get(_SECOND_UNDERSCORE.sub("_", variable))
        if path is None:
            raise ConfigurationError(variable, _unknown(variable, by_variable, file_only))
        if path in seen and environ[seen[path]] != value:
            raise ConfigurationError(variable, f"and {seen[path]} differ: set one of them")
        seen[path] = variable
        yield path, value, variable


def without_setting(environ: Mapping[str, str], path: str) -> dict[str, str]:
    """The environment without a setting, however it is spelled."""
    return {
        name: value
        for name, value in environ.items()
        if _SECOND_UNDERSCORE.sub("_", name) != variable_of(path)
    }


def _is_other(variable: str) -> bool:
    return variable in OTHER_VARIABLES or variable.startswith(TEST_PREFIXES)


def _is_service_link(variable: str, value: str) -> bool:
    if variable.endswith("_PORT") and _SERVICE_ADDRESS.match(value):
        return True
    return _SERVICE_LINK.fullmatch(variable) is not None


def _unknown(variable: str, known: Collection[str], file_only: Collection[str]) -> str:
    section = variable.removeprefix(PREFIX).partition("_")[0].lower()
    if section in file_only:
        return f"{section} are written in the file only"
    close = get_close_matches(variable, [*known, *OTHER_VARIABLES], n=1)
    hint = f"did you mean {close[0]}?" if close else "`gnomon config show` lists them; unset it"
    return f"there is no such setting in the environment; {hint}"
