"""The egress proxy: the operator's, and the only one; what the environment says is not asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from yarl import URL

from gnomon.executors.http.config import HttpConfig
from gnomon.model.errors import ConfigurationError

LOGIN_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class EgressProxy:
    """Where it is, and as whom we speak to it."""

    url: URL
    login: Mapping[str, str] | None = field(default=None, repr=False)  # as a header

    @classmethod
    def read(cls, config: HttpConfig) -> EgressProxy | None:
        """None, if there is none. Errors: ConfigurationError, for a login that is not there."""
        if config.proxy is None:
            return None
        file = config.proxy_login_file
        return cls(URL(config.proxy), None if file is None else _read_login(Path(file)))

    @property
    def place(self) -> tuple[str, int]:
        """Host and port, as a resolver is asked for them."""
        return self.url.raw_host or "", self.url.port or 0


def _read_login(file: Path) -> Mapping[str, str]:
    try:
        with file.open("rb") as stream:
            text = stream.read(LOGIN_BYTES_MAX).decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError):
        text = ""
    user, colon, password = text.partition(":")
    if not (user and colon):
        raise ConfigurationError("http.proxy_login_file", f"{file} must hold user:password")
    return {"Proxy-Authorization": aiohttp.encode_basic_auth(user, password, "utf-8")}
