"""What an effect needs of a worker, and what a worker says it serves."""

from __future__ import annotations

import pytest

from gnomon.executors._target import no_target, serves_target
from gnomon.model.need import NEED_CHARS_MAX, need_of
from gnomon.model.offer import ALL_QUEUES, Offer, encode_offer, read_offer
from gnomon.model.outcome import Unserved
from gnomon.model.spec import Effect, Grpc, Http, Kafka, Mock, Python, Sql


@pytest.mark.parametrize(
    ("effect", "need"),
    [
        (Python(function="welcome"), "function welcome"),
        (Kafka(target="hub", topic="t"), "kafka target hub"),
        (Grpc(target="hub", handler="h"), "grpc target hub"),
        (Sql(target="shop", statement="SELECT 1"), "sql target shop"),
        (Http(method="GET", url="https://example.org"), "kind http"),
        (Mock(), "kind mock"),
    ],
)
def test_every_effect_has_one_need(effect: Effect, need: str) -> None:
    """A short text, the same in every version: it is stored."""
    assert need == need_of(effect)


def test_a_need_is_bounded_and_can_be_stored() -> None:
    """What came into the store by way of SQL may have any name."""
    need = need_of(Python(function="x\x00" * 1_000))
    assert NEED_CHARS_MAX == len(need)
    assert "\x00" not in need


def test_a_target_is_served_by_its_kind_and_name() -> None:
    """Two kinds may have a target of the same name: one that has the other does not serve it."""
    assert Unserved("kafka target hub") == no_target("kafka", "hub")
    assert serves_target("kafka", {"hub"}, "kafka target hub")
    assert not serves_target("rabbitmq", {"hub"}, "kafka target hub")
    assert not serves_target("kafka", {"other"}, "kafka target hub")
    assert not serves_target("kafka", {"", "kafka target hub"}, "function hub")


@pytest.mark.parametrize(
    ("offer", "served", "refused"),
    [
        (ALL_QUEUES, {"mail", "default"}, set()),
        (Offer(only=("mail",)), {"mail"}, {"default"}),
        (Offer(never=("mail",)), {"default"}, {"mail"}),
    ],
)
def test_an_offer_says_which_queues(offer: Offer, served: set[str], refused: set[str]) -> None:
    """All, some, or all but some."""
    assert all(offer.has_queue(queue) for queue in served)
    assert not any(offer.has_queue(queue) for queue in refused)
    assert bool(refused) == offer.is_choosy
    assert offer == read_offer(encode_offer(offer))


def test_an_offer_with_nothing_to_say_takes_no_room() -> None:
    """Every worker writes it with every heartbeat."""
    assert "" == encode_offer(ALL_QUEUES)


@pytest.mark.parametrize("text", ["{", "[]", '{"only": 5}', "null"])
def test_what_another_version_wrote_is_no_reason_to_fail(text: str) -> None:
    """As if it had said nothing."""
    assert ALL_QUEUES == read_offer(text)
