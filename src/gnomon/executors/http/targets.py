"""HTTP targets: receivers whose calls are signed, known by the beginning of their URLs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from yarl import URL

from gnomon.executors._target import Target
from gnomon.executors.http.config import host_of
from gnomon.model.secret import Secret
from gnomon.model.signing_key import SigningKey, read_key

KEYS_MAX = 5
Keys = tuple[SigningKey, ...]
# A path with steps back is not what it begins with.
_STEPS_BACK = re.compile(r"(^|/|%2f)(\.|%2e){1,2}(/|%2f|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTarget(Target):
    """Calls to URLs under `url_prefix` are signed with every one of the keys."""

    url_prefix: str  # https://example.org/hooks/ has https://example.org/hooks/a, not …/hooks2
    # whsec_… (HMAC) or whsk_… (ed25519); several while they are being exchanged
    signing_keys: tuple[Secret, ...]

    def __post_init__(self) -> None:
        Target.__post_init__(self)
        try:
            origin_of(URL(self.url_prefix))
        except ValueError:
            self.refuse("url_prefix", "must be a URL such as https://example.org/hooks/")
        if not 1 <= len(self.signing_keys) <= KEYS_MAX:
            self.refuse("signing_keys", f"must be 1 to {KEYS_MAX}")
        for key in self.signing_keys:
            try:
                read_key(key.reveal())
            except ValueError as exc:
                self.refuse("signing_keys", str(exc))


class SigningKeys:
    """Finds the keys for a URL: those of the longest prefix that fits."""

    def __init__(self, targets: Iterable[HttpTarget]) -> None:
        ordered = sorted(targets, key=lambda target: len(target.url_prefix), reverse=True)
        self._places: dict[tuple[str, str, int | None], list[tuple[str, Keys]]] = {}
        for target in ordered:
            url = URL(target.url_prefix, encoded=True)
            keys = tuple(read_key(key.reveal()) for key in target.signing_keys)
            self._places.setdefault(origin_of(url), []).append((url.raw_path, keys))

    def of(self, url: URL) -> Keys:
        """The keys of the target that the URL belongs to; none if its calls are not signed."""
        if not self._places:
            return ()
        for prefix, keys in self._places.get(origin_of(url), ()):
            if is_under(url.raw_path, prefix):
                return keys
        return ()


def origin_of(url: URL) -> tuple[str, str, int | None]:
    """Scheme, host and port, for comparing. Errors: ValueError."""
    if url.scheme not in ("http", "https"):
        raise ValueError("no URL of a receiver")
    return url.scheme, host_of(url.raw_host or ""), url.port


def is_under(path: str, prefix: str) -> bool:
    """Whether a path is the prefix, or below it: `/hooks` has `/hooks/a` and not `/hooks2`."""
    if prefix in ("", "/"):
        return True
    if _STEPS_BACK.search(path):
        return False
    return path == prefix or path.startswith(prefix if prefix.endswith("/") else f"{prefix}/")
