"""Names and random ids: what is a legal id, which shard it lives in, its delivery key.

Pure: the ids that fence (guid, lease, attempt) are drawn by the injected entropy,
not here; what is derived from other values is derived here.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import NamedTuple, NewType
from uuid import UUID, uuid5

from gnomon.model.errors import InvalidSpec

ActionId = NewType("ActionId", str)

ID_PATTERN = re.compile(r"[A-Za-z0-9._:@-]{1,200}", re.ASCII)
KIND_PATTERN = re.compile(r"[a-z][a-z0-9_-]{0,63}", re.ASCII)
NAME_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
NAME_RULE = "must be 1 to 64 characters out of A-Z a-z 0-9 . _ -"
SHARD_COUNT_DEFAULT = 64
SHARD_COUNT_MAX = 4096


def action_id(text: object) -> ActionId:
    """Accept an id given by a user, or say why not."""
    if not isinstance(text, str) or not ID_PATTERN.fullmatch(text):
        raise InvalidSpec(
            "id", "must be 1 to 200 characters out of A-Z a-z 0-9 . _ : @ -", got=text
        )
    if text in (".", ".."):  # HTTP clients resolve them away: DELETE /v1/actions/.. would hit /v1
        raise InvalidSpec("id", "must not be a path segment that means another path", got=text)
    return ActionId(text)


def check_name(path: str, name: str) -> None:
    """Refuse what is no name of a queue, a target, a stage or the like. Errors: InvalidSpec."""
    if not NAME_PATTERN.fullmatch(name):
        raise InvalidSpec(path, NAME_RULE, got=name)


class EntityKey(NamedTuple):
    """Which entity: an id is unique among those of its kind.

    As text, which is how stores know it, `kind/id`: neither of them has a slash. All of one kind
    begin with `EntityKey(kind, "")`, and no other does.
    """

    kind: str
    id: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.id}"

    @classmethod
    def parse(cls, text: str) -> EntityKey:
        """Out of the text."""
        return _parsed_key(text)


@lru_cache(8_192)  # each stage is shown the same few again
def _parsed_key(text: str) -> EntityKey:
    kind, entity_id = text.split("/")
    return EntityKey(kind, entity_id)


def entity_kind(text: object) -> str:
    """Accept a kind of entities given by a user, or say why not."""
    if not isinstance(text, str) or not KIND_PATTERN.fullmatch(text):
        raise InvalidSpec(
            "kind",
            "must be 1 to 64 characters out of a-z 0-9 _ - and begin with a letter",
            got=text,
        )
    return text


def entity_key(kind: object, entity_id: object) -> EntityKey:
    """Accept kind and id given by a user, or say why not."""
    return EntityKey(entity_kind(kind), action_id(entity_id))


def shard_of(name: str, shard_count: int) -> int:
    """The shard of an id: the beginning of its SHA-256, which SQL and other languages have too."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % shard_count


def keyed_guid(installation: UUID, name: str, key: str, *, actor: str | None = None) -> UUID:
    """The guid of a change sent with an idempotency key: a repeat yields the same generation.

    Everybody with a token has keys of his own: what another one sends under the same is no repeat.
    """
    scoped = key if actor is None else f"{actor}\x00{key}"
    return uuid5(installation, f"{name}\x00{scoped}")


def renewed_guid(batch: UUID, guid: UUID) -> UUID:
    """The guid of the next generation, for one of many that are changed at once; `batch` is a
    UUIDv7, as every guid is, and gives it its time."""
    digest = hashlib.sha256(batch.bytes + guid.bytes).digest()
    value = int.from_bytes(batch.bytes[:6] + digest[:10], "big")
    value = value & ~(0xF << 76) | 7 << 76
    return UUID(int=value & ~(0b11 << 62) | 0b10 << 62)


def delivery_key(installation: UUID, name: str, series: UUID, occurrence_no: int) -> str:
    """The key that all attempts of one occurrence carry and no other occurrence does.

    `series`: the guid that create or replace gave the action. Pause, resume and run now make new
    generations of the same series, so that an occurrence keeps its key.
    """
    named = b"\x00".join((installation.bytes, name.encode(), series.bytes, b"%d" % occurrence_no))
    return "act_" + hashlib.sha256(named).hexdigest()[:32]


def author_of(stage: str) -> str:
    """How a stage signs its changes."""
    return f"stage:{stage}"


def save_key(
    entity_key: str, epoch: int, version: int, *, state: tuple[str, int] | None = None
) -> str:
    """The key of a save on its way out: an entity's version, and (stage, version) of the state that
    was saved with it, if one was. No name of a stage has a slash."""
    key = f"{entity_key}/{epoch}.{version}"
    return key if state is None else f"{key}/{state[0]}.{state[1]}"


def fraction_of(guid: UUID, occurrence_no: int) -> float:
    """A number in [0, 1) that is always the same for one occurrence: jitter without randomness."""
    digest = hashlib.blake2b(guid.bytes + occurrence_no.to_bytes(8, "big"), digest_size=7).digest()
    # 53 bits, as many as a float holds: one bit more and the largest would round up to 1.
    return (int.from_bytes(digest, "big") >> 3) / (1 << 53)
