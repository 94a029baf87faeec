"""The fingerprint of an error: what is left of its text without what differs each time.

Two failures of one cause have one fingerprint, though their texts name other ids, hosts, times and
sizes. It is for people, who see groups instead of a list; nothing is decided by it.
"""

from __future__ import annotations

import re

FINGERPRINT_CHARS_MAX = 200
ERROR_CHARS_LOOKED_AT = 2_000

_ANY_CASE = re.ASCII | re.IGNORECASE
# In this order: what is inside of quotes or addresses is not looked at again.
_REPLACED = (
    (
        re.compile(r"[a-z][a-z0-9+.-]{1,20}://[^\s'\"<>]{1,500}", _ANY_CASE),
        "<address>",
    ),
    (re.compile(r"(?<!\w)'[^'\n]{0,500}'(?!\w)|\"[^\"\n]{0,500}\"|`[^`\n]{0,500}`"), "<text>"),
    (re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}", re.ASCII), "<address>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b", re.ASCII), "<address>"),
    (re.compile(r"\[[0-9a-f:.]{2,45}\](?::\d{1,5})?", _ANY_CASE), "<address>"),
    (
        re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", _ANY_CASE),
        "<id>",
    ),
    (re.compile(r"\b0x[0-9a-f]{1,64}\b", _ANY_CASE), "<id>"),
    (re.compile(r"\b(?=[0-9a-f]{0,63}\d)[0-9a-f]{8,64}\b", _ANY_CASE), "<id>"),
    (re.compile(r"\d{1,500}(?:[.,]\d{1,500}){0,8}", re.ASCII), "<n>"),
)
_SPACE = re.compile(r"\s+")


def fingerprint_of(error: str) -> str:
    """A short text in one line; the same again if it is given its own."""
    text = error[:ERROR_CHARS_LOOKED_AT]
    for pattern, name in _REPLACED:
        text = pattern.sub(name, text)
    return _SPACE.sub(" ", text).strip()[:FINGERPRINT_CHARS_MAX].rstrip()
