"""A value that must not be shown: by its type, not by a pattern that looks for secrets in text."""

from __future__ import annotations

import hmac
import re

HIDDEN = "***"
SECRET_PREFIX = "secret://"  # noqa: S105 - how a secret is named, not one
CUT_CHARS_MIN = 4  # of a secret at the end of a text: fewer are there by chance, and tell nothing
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


class Secret:
    """Holds a text and shows stars. Only `reveal` gives it away, at the place that needs it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The text itself. Call it as late as possible, and never into a message."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({HIDDEN})"

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, _spec: str) -> str:
        return HIDDEN

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash(("Secret", self._value))

    def __reduce__(self) -> str:
        raise TypeError("a secret is not to be stored")


def hide(text: str, *secrets: Secret) -> str:
    """The text without these secrets, and without the beginning of one where the text was cut off:
    a receiver may repeat what it was told."""
    for secret in secrets:
        value = secret.reveal()
        text = text.replace(value, HIDDEN)
        for length in range(len(value) - 1, CUT_CHARS_MIN - 1, -1):
            if text.endswith(value[:length]):
                text = text[:-length] + HIDDEN
                break
    return text


def secret_name(text: str) -> str | None:
    """The name in `secret://name`; None for any other text. Errors: ValueError, for a bad name."""
    if not text.startswith(SECRET_PREFIX):
        return None
    name = text.removeprefix(SECRET_PREFIX)
    if not _NAME.fullmatch(name):
        raise ValueError("the name of a secret must be 1 to 64 characters out of A-Z a-z 0-9 . _ -")
    return name
