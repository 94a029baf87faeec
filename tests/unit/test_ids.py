"""Ids, shards, keys: what is legal, and what must never change between versions."""

from __future__ import annotations

from unittest.mock import patch
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.model.errors import InvalidSpec
from gnomon.model.ids import (
    EntityKey,
    action_id,
    delivery_key,
    entity_key,
    entity_kind,
    fraction_of,
    keyed_guid,
    save_key,
    shard_of,
)

INSTALLATION = UUID("12345678-1234-5678-1234-567812345678")
GUID = UUID("018f0000-0000-7000-8000-000000000001")


@pytest.mark.parametrize(
    "text", ["a", "A-Z_0.9:@", "...", "=cmd()"[4:-2] + "x", "user:42@eu", "x" * 200, "trailing."]
)
def test_plain_ids_are_accepted(text: str) -> None:
    """Letters, digits and . _ : @ - up to 200."""
    assert text == action_id(text)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "   ", "a b", "../x", "..", ".", "/", "a/b", "a\\b", "'", '"', "a'b", "a;--",
        "%00",
        "\x00", "a\x00", "a\n", "\n", "a\r\nb", "\u202eabc", "x" * 201, "x" * 10_000, "😀", "é",
        "\uff11",
        "\x1b[31mred", "<b>", "=cmd()", "{0.__class__}", "a\u2028b", "\ud800", None, 7, b"a", ["a"],
    ],
)  # fmt: skip
def test_bad_ids_are_refused_in_one_escaped_line(text: object) -> None:
    """The message is short, printable and names the field, whatever was sent."""
    with pytest.raises(InvalidSpec) as caught:
        action_id(text)
    assert "id" == caught.value.path
    message = str(caught.value)
    assert len(message) < 200
    assert not {"\n", "\r", "\x00", "\x1b", "\u202e", "\u2028"} & set(message)


@pytest.mark.parametrize(
    ("name", "shard"), [("abc", 0xBA7816BF % 64), ("a", 18), ("user:42@eu", 10)]
)
def test_the_shard_of_an_id_never_changes(name: str, shard: int) -> None:
    """The beginning of its SHA-256 modulo the count: stored data depends on it."""
    assert shard == shard_of(name, 64)


@given(st.text(), st.integers(1, 4096))
def test_a_shard_is_within_its_count(name: str, count: int) -> None:
    """Every id has a shard, whatever is in it."""
    assert 0 <= shard_of(name.encode("utf-8", "replace").decode(), count) < count


def test_a_repeated_key_gives_the_same_generation() -> None:
    """The same id and key again: the same guid; another id, key or installation: another."""
    guid = keyed_guid(INSTALLATION, "a", "k")
    assert guid == keyed_guid(INSTALLATION, "a", "k")
    others = {
        keyed_guid(INSTALLATION, "b", "k"),
        keyed_guid(INSTALLATION, "a", "l"),
        keyed_guid(GUID, "a", "k"),
    }
    assert guid not in others


def test_the_save_key_is_one_per_save() -> None:
    """Of an entity's version, and of a state's where one was saved with it."""
    assert "ad-1/2.7" == save_key("ad-1", 2, 7)
    keys = {
        save_key("ad-1", 2, 7),
        save_key("ad-1", 27, 7),
        save_key("ad-1", 2, 77),
        save_key("ad-12", 7, 7),
        save_key("ad-1", 2, 7, state=("photos", 1)),
        save_key("ad-1", 2, 7, state=("photos", 2)),
        save_key("ad-1", 2, 7, state=("price", 1)),
    }
    assert 7 == len(keys)


def test_the_delivery_key_is_one_per_occurrence() -> None:
    """Same occurrence, same key, for ever; anything else differs."""
    key = delivery_key(INSTALLATION, "a", GUID, 1)
    assert "act_efa49075fd21bb69d4b67040efe4cb15" == key
    others = {
        delivery_key(INSTALLATION, "a", GUID, 2),
        delivery_key(INSTALLATION, "b", GUID, 1),
        delivery_key(INSTALLATION, "a", INSTALLATION, 1),
        delivery_key(GUID, "a", GUID, 1),
    }
    assert 4 == len(others - {key})


@given(st.uuids(), st.integers(0, 2**63 - 1))
def test_a_fraction_is_fixed_and_below_one(guid: UUID, occurrence_no: int) -> None:
    """Jitter needs a number in [0, 1) that is always the same."""
    found = fraction_of(guid, occurrence_no)
    assert 0.0 <= found < 1.0
    assert found == fraction_of(guid, occurrence_no)


def test_the_largest_fraction_is_below_one() -> None:
    """Even all bits set must not round up to 1."""
    with patch("gnomon.model.ids.hashlib.blake2b") as blake2b:
        blake2b.return_value.digest.return_value = b"\xff" * 7
        assert fraction_of(GUID, 1) < 1.0


# -- entities -------------------------------------------------------------------------------------

KINDS = st.from_regex(r"[a-z][a-z0-9_-]{0,63}", fullmatch=True)
IDS = st.from_regex(r"[A-Za-z0-9._:@-]{1,200}", fullmatch=True).filter(
    lambda text: text not in (".", "..")
)
KEYS = st.builds(entity_key, KINDS, IDS)


@given(KEYS, KEYS)
def test_an_entity_key_is_read_as_it_is_written(one: EntityKey, other: EntityKey) -> None:
    """Back and forth, and no two have one text."""
    assert one == EntityKey.parse(str(one))
    assert (one == other) == (str(one) == str(other))


@given(KINDS, KEYS)
def test_all_keys_of_a_kind_and_no_others_begin_with_it(kind: str, key: EntityKey) -> None:
    """So that a list of one kind is a range: `0` is what follows `/`."""
    begins = str(EntityKey(kind, ""))
    assert (key.kind == kind) == str(key).startswith(begins)
    assert (key.kind == kind) == (begins < str(key) < f"{kind}0")


@pytest.mark.parametrize(
    "kind",
    [
        "", "A", "Ad", "1ad", "-ad", "_ad", "a d", "a/b", "ad/", "a.b", "a:b", "ä", "ad\n", "a\x00",
        "\uff41", "a" * 65, None, 1, str,
    ],
)  # fmt: skip
def test_a_bad_kind_is_refused(kind: object) -> None:
    """With the rule, and what was given."""
    for refused in (lambda: entity_kind(kind), lambda: entity_key(kind, "1")):
        with pytest.raises(InvalidSpec, match="a-z 0-9 _ - and begin with a letter") as told:
            refused()
        assert "kind" == told.value.path


@pytest.mark.parametrize("text", ["", "ad", "ad/1/2"])
def test_what_is_no_key_is_not_read_as_one(text: str) -> None:
    """It would be another entity."""
    with pytest.raises(ValueError, match="unpack"):
        EntityKey.parse(text)
