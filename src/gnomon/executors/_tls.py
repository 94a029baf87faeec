"""How an executor speaks TLS: certificates are always verified."""

from __future__ import annotations

import ssl

from gnomon.model.errors import ConfigurationError


def tls_context(
    target: str, *, ca_file: str | None, certificate_file: str | None, key_file: str | None
) -> ssl.SSLContext:
    """The context for a target's TLS files; without a `ca_file`, the machine's authorities count.

    Errors: ConfigurationError.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
        if certificate_file is not None:
            context.load_cert_chain(certificate_file, key_file)
    except OSError as exc:  # missing files, and what OpenSSL cannot read
        raise ConfigurationError(
            f"targets.{target}", f"the files for TLS cannot be loaded: {exc.strerror}"
        ) from exc
    return context
