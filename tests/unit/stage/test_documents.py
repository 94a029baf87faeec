"""Documents in memory: each entity's newest, within bounds."""

from __future__ import annotations

from datetime import UTC, datetime

from gnomon.contracts.store.entities import Entity
from gnomon.stages.documents import COUNT_MAX, LoadedDocuments

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def entity(key: str, doc: str) -> Entity:
    return Entity(key=key, shard=0, epoch=1, version=1, doc=doc, changed_at=NOW)


def test_a_document_is_loaded_until_it_is_another_one() -> None:
    """The same text is the same document, whoever read it from the store."""
    documents = LoadedDocuments()
    first = documents.of(entity("ad/a", '{"n":1}'))
    assert first is documents.of(entity("ad/a", '{"n":1}'))
    assert first is not documents.of(entity("ad/a", '{"n":2}'))


def test_one_id_of_two_kinds_is_two_entities() -> None:
    """They do not displace each other, and share nothing though they are equal."""
    documents = LoadedDocuments()
    ad = documents.of(entity("ad/a", "{}"))
    assert ad is not documents.of(entity("order/a", "{}"))
    assert ad is documents.of(entity("ad/a", "{}"))


def test_no_more_is_kept_than_there_is_room_for() -> None:
    """The oldest goes; one that is too large by itself is given, and not kept."""
    documents = LoadedDocuments(chars_max=20)
    first = documents.of(entity("ad/a", '{"n":11}'))
    second = documents.of(entity("ad/b", '{"n":22}'))
    documents.of(entity("ad/c", '{"n":33}'))
    assert second is documents.of(entity("ad/b", '{"n":22}'))
    assert first is not documents.of(entity("ad/a", '{"n":11}'))

    large = documents.of(entity("ad/d", '{"n":"' + "x" * 30 + '"}'))
    assert {"n": "x" * 30} == large.document
    documents.forget(entity("ad/d", "{}"))
    assert documents.of(entity("ad/a", "{}")) is documents.of(entity("ad/a", "{}"))


def test_small_documents_have_a_bound_by_number() -> None:
    """A million of two characters each would be within any number of characters."""
    documents = LoadedDocuments()
    first = documents.of(entity("ad/0", "{}"))
    for number in range(1, COUNT_MAX):
        documents.of(entity(f"ad/{number}", "{}"))
    assert first is documents.of(entity("ad/0", "{}"))
    documents.of(entity("ad/one-more", "{}"))
    assert first is not documents.of(entity("ad/0", "{}"))
