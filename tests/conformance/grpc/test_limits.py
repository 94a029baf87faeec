"""Limits over gRPC: the same verbs, rules and rights as over REST."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from gnomon.clock import SystemEntropy
from gnomon.gateways.auth import issue
from gnomon.v1 import scheduler_pb2 as pb
from tests.conformance.grpc.conftest import Served
from tests.conformance.grpc.test_refusals import refusal_of


def mail(**fields: Any) -> pb.Limit:
    return pb.Limit(kind=pb.LIMIT_KIND_QUEUE, name="mail", **fields)


async def test_a_limit_is_set_listed_and_dropped(served: Served) -> None:
    """Zero is a limit; what is not set comes back as not set."""
    answer = await served.stub.SetLimit(pb.SetLimitRequest(limit=mail(parallel=0, rate=2.5)))
    listed = await served.stub.ListLimits(pb.ListLimitsRequest())
    dropped = await served.stub.DropLimit(
        pb.DropLimitRequest(kind=pb.LIMIT_KIND_QUEUE, name="mail")
    )

    assert mail(parallel=0, rate=2.5) == answer.use.limit == dropped.use.limit
    assert [answer.use] == list(listed.uses)
    assert not answer.use.limit.HasField("burst")
    assert [] == list((await served.stub.ListLimits(pb.ListLimitsRequest())).uses)


@pytest.mark.parametrize(
    ("limit", "field"),
    [
        (pb.Limit(), "kind"),
        (pb.Limit(kind=pb.LIMIT_KIND_QUEUE, parallel=1), "name"),
        (mail(), "parallel"),
        (mail(parallel=-1), "parallel"),
        (mail(rate=float("nan")), "rate"),
        (mail(rate=float("inf")), "rate"),
        (mail(parallel=1, burst=2), "burst"),
    ],
)
async def test_a_bad_limit_is_refused(served: Served, limit: pb.Limit, field: str) -> None:
    """The field is named, and nothing is stored."""
    found = await refusal_of(served.stub.SetLimit(pb.SetLimitRequest(limit=limit)))
    assert (grpc.StatusCode.INVALID_ARGUMENT, field) == (found.code, found.problem.fields["path"])
    assert [] == list(await served.app.scheduler.list_limits())


async def test_dropping_what_is_not_there_says_so(served: Served) -> None:
    """NOT_FOUND; and a kind is needed."""
    request = pb.DropLimitRequest(kind=pb.LIMIT_KIND_TARGET, name="hook")
    assert grpc.StatusCode.NOT_FOUND == (await refusal_of(served.stub.DropLimit(request))).code
    request = pb.DropLimitRequest(name="hook")
    found = await refusal_of(served.stub.DropLimit(request))
    assert grpc.StatusCode.INVALID_ARGUMENT == found.code


async def test_only_an_operator_changes_limits(served: Served) -> None:
    """Who may write actions is told what he lacks."""
    text, draft = issue("bob", ["write"], entropy=SystemEntropy())
    await served.app.store.tokens.create(draft)
    metadata = (("authorization", f"Bearer {text}"),)
    for call in (
        served.stub.SetLimit(pb.SetLimitRequest(limit=mail(parallel=1)), metadata=metadata),
        served.stub.DropLimit(
            pb.DropLimitRequest(kind=pb.LIMIT_KIND_QUEUE, name="mail"), metadata=metadata
        ),
    ):
        found = await refusal_of(call)
        assert (grpc.StatusCode.PERMISSION_DENIED, "admin") == (
            found.code,
            found.problem.fields["scope"],
        )
