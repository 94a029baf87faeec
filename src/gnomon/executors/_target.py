"""What targets of several kinds have in common: a name, bounds, and files for TLS."""

from __future__ import annotations

import ssl
from collections.abc import Container
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn

from gnomon.model.errors import ConfigurationError, short
from gnomon.model.ids import NAME_PATTERN, NAME_RULE
from gnomon.model.need import target_need
from gnomon.model.outcome import Unserved

MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A place outside that the operator has named."""

    name: str

    def __post_init__(self) -> None:
        if not NAME_PATTERN.fullmatch(self.name):
            raise ConfigurationError(f"targets.{short(self.name)}", NAME_RULE)

    def refuse(self, option: str, problem: str) -> NoReturn:
        """Errors: ConfigurationError."""
        raise ConfigurationError(f"targets.{self.name}.{option}", problem)

    def check_in_flight(self, in_flight_max: int, most: int) -> None:
        if not 1 <= in_flight_max <= most:
            self.refuse("in_flight_max", f"must be between 1 and {most}")

    def check_durations(self, **durations: timedelta | None) -> None:
        """Each under the name of its option; None: there is none."""
        for option, duration in durations.items():
            if duration is not None and duration < MILLISECOND:
                self.refuse(option, "must be at least 1 ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsTarget(Target):
    """A target that may be spoken to with TLS. Certificates are always verified."""

    ca_file: str | None = None  # for TLS; the machine's authorities by default
    certificate_file: str | None = None  # of ours, when the other side asks for one
    key_file: str | None = None  # of the certificate, unless it is in the same file

    def __post_init__(self) -> None:
        Target.__post_init__(self)
        if self.key_file is not None and self.certificate_file is None:
            self.refuse("key_file", "must come with a certificate_file")

    @property
    def has_tls_files(self) -> bool:
        return any((self.ca_file, self.certificate_file, self.key_file))

    def tls_context(self) -> ssl.SSLContext:
        """Errors: ConfigurationError."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file is not None:
                context.load_cert_chain(self.certificate_file, self.key_file)
        except OSError as exc:  # missing files, and what OpenSSL cannot read
            raise ConfigurationError(
                f"targets.{self.name}", f"the files for TLS cannot be loaded: {exc.strerror}"
            ) from exc
        return context


def no_target(kind: str, name: str) -> Unserved:
    """What becomes of an attempt whose target this worker does not know."""
    return Unserved(target_need(kind, name))


def serves_target(kind: str, targets: Container[str], need: str) -> bool:
    """Whether one of these targets is what the need names."""
    name = need.removeprefix(target_need(kind, ""))
    return name != need and name in targets
