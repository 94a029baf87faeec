"""Parts: which shards a statement may name together."""

from __future__ import annotations

from gnomon.stores.postgres.arrivals import shares_of
from gnomon.stores.postgres.connection import Database
from gnomon.stores.postgres.parts import Only, Parts, PartShards, only_these
from gnomon.stores.postgres.texts import texts_of

SHARDS = (4, 1, 3, 4, 2)


class Split(Database):
    """Splits, and does nothing else."""

    def __init__(self, parts: Parts, *, many_shards: bool = False) -> None:
        self.parts = parts
        self.many_shards = many_shards


def split(database: Database) -> list[tuple[list[int], Only]]:
    return list(database.split(SHARDS, lambda shard: shard))


def test_while_nothing_is_known_every_shard_is_a_part() -> None:
    """Slow, and never wrong."""
    parts = Parts(is_citus=True)

    assert not parts.are_known
    assert [([4, 4], (4,)), ([1], (1,)), ([3], (3,)), ([2], (2,))] == split(Split(parts))


def test_shards_of_one_part_go_together_each_named_once() -> None:
    """In the order in which they were given; a part with one shard has its own, cheaper text."""
    parts = Parts(is_citus=True)
    parts.learn({1: 70, 2: 71, 3: 70, 4: 70})

    assert parts.are_known
    assert [([4, 1, 3, 4], (PartShards([1, 3, 4]),)), ([2], (2,))] == split(Split(parts))


def test_one_statement_for_all_where_it_may_touch_them_all() -> None:
    """Whatever is known of parts; and none for nothing."""
    database = Split(Parts(is_citus=False), many_shards=True)

    assert [(list(SHARDS), ())] == split(database)
    assert [] == list(database.groups([]))


def test_who_cuts_a_part_is_noticed() -> None:
    """By every statement that was sent while it was known. What is refused although nothing was
    known is a mistake of ours."""
    parts = Parts(is_citus=True)
    parts.learn({1: 70, 2: 70})

    assert parts.excuse("0A000", relied=parts.may_be_wrong)
    assert not parts.are_known
    assert not parts.may_be_wrong
    assert parts.of(1) != parts.of(2)
    assert parts.excuse("0A000", relied=True), "two were on their way"
    assert not parts.excuse("0A000", relied=False)


def test_a_node_that_is_lost_is_no_mistake_of_ours() -> None:
    """Citus says `could not commit` with the code of an internal error; what is known stays."""
    parts = Parts(is_citus=True)
    parts.learn({1: 70, 2: 70})

    assert parts.excuse("XX000", relied=True)
    assert parts.excuse("XX000", relied=False)
    assert parts.are_known
    assert not parts.excuse("23505", relied=True)
    assert not parts.excuse(None, relied=True)
    assert not Parts(is_citus=False).excuse("XX000", relied=False)


def test_without_citus_parts_can_be_counted() -> None:
    """So that CI has them."""
    parts = Parts(is_citus=False, count=2)

    assert parts.are_known
    assert [([4, 4, 2], (PartShards([2, 4]),)), ([1, 3], (PartShards([1, 3]),))] == split(
        Split(parts)
    )
    assert not parts.may_be_wrong
    assert Parts(is_citus=True, count=2).of(4) != Parts(is_citus=True, count=2).of(2)


def test_the_text_is_the_one_that_the_last_argument_asks_for() -> None:
    texts = texts_of("s", many_shards=False)

    assert "q.shard_id = $3" in texts.text("finish_take", ([], [], 5))
    assert "q.shard_id = ANY ($3::oid[])" in texts.text("finish_take", ([], [], PartShards([5, 6])))
    assert texts["now"] == texts.text("now", ())
    assert "shard_id = $3" not in texts_of("s", many_shards=True)["finish_take"]


def test_what_is_about_the_oldest_rows_has_nothing_about_the_newest() -> None:
    """Citus plans all of a statement; on one machine it is prepared once, and there is one text."""
    texts = texts_of("s", many_shards=False)

    for name in ("begin", "begin_lane", "move_and_begin_part"):
        for of_one in (texts, texts.of_part):
            assert " DESC" in of_one[name]
            assert " DESC" not in of_one[f"{name}_oldest"]
            assert "$13::boolean" in of_one["begin_oldest"], "the parameters are the same"
    assert "begin_oldest" not in texts_of("s", many_shards=True)


def test_room_is_shared_out_whole() -> None:
    """No part gets what another has."""
    assert [{"a": 3, "b": 1}, {"a": 2, "b": 0}, {"a": 2, "b": 0}] == shares_of({"a": 7, "b": 1}, 3)


def test_the_shards_of_a_part_are_sorted() -> None:
    """Callers that name the same shards send the same arguments."""
    assert (PartShards([1, 2, 9]),) == only_these([9, 1, 2, 9])
    assert (7,) == only_these([7, 7])
