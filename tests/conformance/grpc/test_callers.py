"""Who may call over gRPC: the same tokens, scopes and limits as over REST; and TLS both ways."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from gnomon.app import App
from gnomon.clock import SystemClock, SystemEntropy
from gnomon.contracts.store import AuditSelection
from gnomon.gateways import changes, watchers
from gnomon.gateways.auth import Authorizer, Principal, issue
from gnomon.gateways.config import ServerConfig
from gnomon.gateways.grpc.server import GrpcServer
from gnomon.model.errors import ConfigurationError, Forbidden
from gnomon.model.spec import Python, Spec, Sql
from gnomon.scheduler import Request
from gnomon.v1 import entity_pb2
from gnomon.v1 import scheduler_pb2 as pb
from gnomon.v1.entity_pb2_grpc import EntityServiceStub
from gnomon.v1.scheduler_pb2_grpc import SchedulerServiceStub
from tests.conformance.grpc.conftest import Served, spec_of
from tests.conformance.grpc.test_refusals import Refusal, refusal_of

READS = [
    ("Get", pb.GetRequest(id="a")),
    ("List", pb.ListRequest()),
    ("Attempts", pb.AttemptsRequest(id="a")),
    ("ListLimits", pb.ListLimitsRequest()),
]
WRITES = [
    ("Create", pb.CreateRequest(id="b", spec=spec_of())),
    ("Replace", pb.ReplaceRequest(id="a", spec=spec_of())),
    ("CreateMany", pb.CreateManyRequest(actions=[pb.CreateRequest(id="b", spec=spec_of())])),
    ("Pause", pb.PauseRequest(id="a")),
    ("Resume", pb.ResumeRequest(id="a")),
    ("RunNow", pb.RunNowRequest(id="a")),
    ("Delete", pb.DeleteRequest(id="a")),
    ("Retry", pb.RetryRequest(id="a")),
]


async def token_for(served: Served, name: str, *scopes: str, **limits: Any) -> str:
    text, draft = issue(name, scopes, entropy=SystemEntropy(), **limits)
    await served.app.store.tokens.create(draft)
    return text


def bearing(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


@asynccontextmanager
async def serving(app: App, config: ServerConfig, **options: Any) -> AsyncIterator[str]:
    """Another server over the same store; its authorizer trusts nothing it has seen."""
    stop = asyncio.Event()
    authorizer = Authorizer(
        app.store.tokens, clock=SystemClock(), trusted_s=0.0, redact=config.redact
    )
    server = GrpcServer(app.scheduler, config, authorizer=authorizer, **options)
    running = asyncio.create_task(server.serve(stop=stop))
    try:
        yield server.address
    finally:
        stop.set()
        await running


@pytest.fixture
async def stub(served: Served) -> AsyncIterator[Any]:
    """The stub of a server that asks anew for every call."""
    await served.create("a")
    async with (
        serving(served.app, ServerConfig(grpc_port=0)) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        yield SchedulerServiceStub(channel)


async def test_with_the_first_token_every_call_needs_one(served: Served, stub: Any) -> None:
    """Before it, none; after it, UNAUTHENTICATED from every rpc, and nothing happens."""
    await stub.Get(pb.GetRequest(id="a"))
    await token_for(served, "ann", "read")
    for name, request in READS + WRITES:
        found = await refusal_of(getattr(stub, name)(request))
        assert (grpc.StatusCode.UNAUTHENTICATED, "unauthenticated") == (
            found.code,
            found.problem.code,
        )
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        _ = [answer async for answer in stub.Watch(pb.WatchRequest(id="a"))]
    assert "unauthenticated" == Refusal(caught.value).problem.code
    assert "active" == (await served.app.scheduler.get("a")).status.state


async def test_scopes_divide_reading_and_writing(served: Served, stub: Any) -> None:
    """A reader may look at all, and change nothing; a writer the other way round."""
    reader = bearing(await token_for(served, "ann", "read"))
    writer = bearing(await token_for(served, "bob", "write"))
    for name, request in READS:
        await getattr(stub, name)(request, metadata=reader)
        found = await refusal_of(getattr(stub, name)(request, metadata=writer))
        assert (grpc.StatusCode.PERMISSION_DENIED, "read") == (
            found.code,
            found.problem.fields["scope"],
        )
    for name, request in WRITES:
        found = await refusal_of(getattr(stub, name)(request, metadata=reader))
        assert (grpc.StatusCode.PERMISSION_DENIED, "write") == (
            found.code,
            found.problem.fields["scope"],
        )
    assert "active" == (await served.app.scheduler.get("a")).status.state
    for name, request in WRITES[:-1]:  # without the last one, Retry, which would revive it
        await getattr(stub, name)(request, metadata=writer)
    assert "cancelled" == (await served.app.scheduler.get("a")).status.state


@pytest.mark.parametrize(
    "metadata",
    [
        (("authorization", "Bearer gnomon_" + "A" * 43),),
        (("authorization", "Bearer x"),),
        (("authorization", "Bearer"),),
        (("authorization", "Basic YTpi"),),
        (("authorization", ""),),
        (("authorization", "Bearer x"), ("authorization", "Bearer y")),
    ],
)
async def test_wrong_tokens_are_refused(
    served: Served, stub: Any, metadata: tuple[tuple[str, str], ...]
) -> None:
    """Unknown, cut, of another kind, or two of them."""
    await token_for(served, "ann", "admin")
    found = await refusal_of(stub.Get(pb.GetRequest(id="a"), metadata=metadata))
    assert grpc.StatusCode.UNAUTHENTICATED == found.code


async def test_changes_are_audited_under_the_tokens_name(served: Served, stub: Any) -> None:
    """Each verb, once."""
    writer = bearing(await token_for(served, "bob", "write"))
    for name, request in WRITES:
        if name != "CreateMany":
            await getattr(stub, name)(request, metadata=writer)
    entries = await served.app.store.tokens.list_audit(AuditSelection(actor="bob"), limit=100)
    assert ["create", "replace", "pause", "resume", "run_now", "delete", "retry"] == [
        entry.verb for entry in reversed(entries)
    ]
    assert {"grpc"} == {entry.face for entry in entries}


async def test_a_key_is_its_tokens_own(served: Served, stub: Any) -> None:
    """The same idempotency key from two tokens is no repeat: neither learns of the other's."""
    ann, bob = [bearing(await token_for(served, name, "write")) for name in ("ann", "bob")]
    request = pb.CreateRequest(spec=spec_of(), idempotency_key="k")
    first, second, third = [
        (await stub.Create(request, metadata=caller)).changed for caller in (ann, bob, ann)
    ]
    assert [False, False, True] == [found.repeated for found in (first, second, third)]
    ids = [found.action.meta.id for found in (first, second, third)]
    assert ids[0] == ids[2] != ids[1]


async def test_limits_of_a_token_count(served: Served, stub: Any) -> None:
    """Too many live actions, too many calls: RESOURCE_EXHAUSTED, with the time to wait."""
    few = bearing(await token_for(served, "few", "write", live_max=1))
    await stub.Create(pb.CreateRequest(spec=spec_of()), metadata=few)
    for call in (
        stub.Create(pb.CreateRequest(spec=spec_of()), metadata=few),
        stub.Replace(pb.ReplaceRequest(id="new", spec=spec_of()), metadata=few),
        stub.CreateMany(
            pb.CreateManyRequest(actions=[pb.CreateRequest(spec=spec_of())]), metadata=few
        ),
    ):
        found = await refusal_of(call)
        assert (grpc.StatusCode.RESOURCE_EXHAUSTED, "token.live_max") == (
            found.code,
            found.problem.fields["limit"],
        )
    await stub.Replace(pb.ReplaceRequest(id="a", spec=spec_of()), metadata=few)
    slow = bearing(await token_for(served, "slow", "read", rate=0.01))
    await stub.Get(pb.GetRequest(id="a"), metadata=slow)
    found = await refusal_of(stub.Get(pb.GetRequest(id="a"), metadata=slow))
    assert "token.rate" == found.problem.fields["limit"]
    assert found.pushback is not None


async def test_what_a_spec_needs_is_asked_for(
    served: Served, stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some effects need more than `write`: create, replace and each item of a bulk ask for it."""

    def check_spec(principal: Principal, spec: Spec) -> None:
        if spec.priority == 1:
            raise Forbidden("this needs a token with the scope sql:x", scope="sql:x")

    monkeypatch.setattr(changes, "check_spec", check_spec)
    for call in (
        stub.Create(pb.CreateRequest(id="b", spec=spec_of(priority=1))),
        stub.Replace(pb.ReplaceRequest(id="b", spec=spec_of(priority=1))),
    ):
        found = await refusal_of(call)
        assert (grpc.StatusCode.PERMISSION_DENIED, "sql:x") == (
            found.code,
            found.problem.fields["scope"],
        )
    items = [pb.CreateRequest(id=f"c{n}", spec=spec_of(priority=n)) for n in (0, 1, 2)]
    answer = await stub.CreateMany(pb.CreateManyRequest(actions=items))
    assert ["c0", "forbidden", "c2"] == [
        result.problem.code or result.created.meta.id for result in answer.results
    ]


async def test_a_watch_ends_with_its_token(
    served: Served, stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who lost his right does not look on."""
    monkeypatch.setattr(watchers, "CONFIRM_S", 0.05)
    reader = bearing(await token_for(served, "ann", "read"))
    call = stub.Watch(pb.WatchRequest(id="a"), metadata=reader)
    await call.read()
    await served.app.store.tokens.revoke("ann")
    found = await refusal_of(asyncio.wait_for(call.read(), 10))
    assert grpc.StatusCode.UNAUTHENTICATED == found.code


async def test_watchers_are_bounded(
    served: Served, stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more is told to come back; when one goes, there is room again."""
    monkeypatch.setattr(watchers, "WATCHERS_MAX", 1)
    first = stub.Watch(pb.WatchRequest(id="a"))
    await first.read()
    found = await refusal_of(stub.Watch(pb.WatchRequest(id="a")).read())
    assert (grpc.StatusCode.RESOURCE_EXHAUSTED, "watchers") == (
        found.code,
        found.problem.fields["limit"],
    )
    first.cancel()
    async with asyncio.timeout(10):
        while True:
            try:
                await stub.Watch(pb.WatchRequest(id="a")).read()
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.02)
            else:
                break


async def test_a_server_that_stops_says_so(served: Served) -> None:
    """Watchers are told to come back, and do not hold up the end."""
    await served.create("a")
    async with serving(served.app, ServerConfig(grpc_port=0)) as address:
        channel = grpc.aio.insecure_channel(address)
        stub: Any = SchedulerServiceStub(channel)
        call = stub.Watch(pb.WatchRequest(id="a"))
        await call.read()
        began = asyncio.get_running_loop().time()
    took_s = asyncio.get_running_loop().time() - began
    found = await refusal_of(call.read())
    await channel.close()
    assert (grpc.StatusCode.UNAVAILABLE, "unavailable") == (found.code, found.problem.code)
    assert took_s < 3


# -- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("tls")
    for name in ("server", "client", "stranger"):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-days", "2", "-subj", f"/CN={name}.test",
             "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
             "-keyout", found / f"{name}.key", "-out", found / f"{name}.pem"],
            check=True, capture_output=True,
        )  # fmt: skip
    return found


async def asked(address: str, folder: Path, name: str | None) -> str:
    """The status of a call with the certificate of that name, or with none."""
    pair = [(folder / f"{name}.{end}").read_bytes() for end in ("key", "pem")] if name else []
    credentials = grpc.ssl_channel_credentials((folder / "server.pem").read_bytes(), *pair)
    async with grpc.aio.secure_channel(address, credentials) as channel:
        stub: Any = SchedulerServiceStub(channel)
        try:
            await stub.List(pb.ListRequest(), timeout=5)
        except grpc.aio.AioRpcError as exc:
            return exc.code().name
        return "OK"


async def test_callers_need_a_certificate_of_the_authority(served: Served, folder: Path) -> None:
    """With `grpc_tls_client_ca`: ours gets in, a stranger's and none do not."""
    config = ServerConfig(
        grpc_port=0,
        grpc_tls_cert=str(folder / "server.pem"),
        grpc_tls_key=str(folder / "server.key"),
        grpc_tls_client_ca=str(folder / "client.pem"),
    )
    async with serving(served.app, config) as address:
        found = [await asked(address, folder, name) for name in ("client", "stranger", None)]
    assert ["OK", "UNAVAILABLE", "UNAVAILABLE"] == found


async def test_tls_without_an_authority_asks_for_none(served: Served, folder: Path) -> None:
    """And clear text is not understood."""
    config = ServerConfig(
        grpc_port=0, tls_cert=str(folder / "server.pem"), tls_key=str(folder / "server.key")
    )
    async with serving(served.app, config) as address:
        assert "OK" == await asked(address, folder, None)
        async with grpc.aio.insecure_channel(address) as channel:
            stub: Any = SchedulerServiceStub(channel)
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.List(pb.ListRequest(), timeout=5)


@pytest.mark.parametrize("option", ["grpc_tls_cert", "grpc_tls_key", "grpc_tls_client_ca"])
async def test_missing_files_are_named(served: Served, folder: Path, option: str) -> None:
    """When the server starts."""
    whole: dict[str, Any] = {
        "grpc_port": 0,
        "grpc_tls_cert": str(folder / "server.pem"),
        "grpc_tls_key": str(folder / "server.key"),
        "grpc_tls_client_ca": str(folder / "client.pem"),
        option: "/no/such/file",
    }
    with pytest.raises(ConfigurationError, match=f"server.{option}"):
        GrpcServer(served.app.scheduler, ServerConfig(**whole))


@pytest.mark.parametrize(
    ("before", "name", "request_"),
    [
        ("", "RunNow", pb.RunNowRequest(id="report")),
        ("pause", "Resume", pb.ResumeRequest(id="report")),
        ("delete", "Retry", pb.RetryRequest(id="report")),
    ],
)
async def test_making_sql_run_needs_the_scope_of_its_target(
    served: Served, stub: Any, before: str, name: str, request_: Any
) -> None:
    """Not only storing it: `write` alone makes no statement run."""
    scheduler = served.app.scheduler
    effect = Sql(target="reports", statement="SELECT 1")
    await scheduler.create(Request(id="report", spec=Spec(action=effect)))
    if before:
        await getattr(scheduler, before)("report")
    found = await scheduler.get("report")
    for caller, scopes in (("bob", ["write"]), ("eve", ["write", "sql:other"])):
        metadata = bearing(await token_for(served, caller, *scopes))
        refused = await refusal_of(getattr(stub, name)(request_, metadata=metadata))
        assert (grpc.StatusCode.PERMISSION_DENIED, "sql:reports") == (
            refused.code,
            refused.problem.fields["scope"],
        )
    assert found == await scheduler.get("report")
    allowed = bearing(await token_for(served, "ann", "write", "sql:reports"))
    await getattr(stub, name)(request_, metadata=allowed)
    assert found.meta.guid != (await scheduler.get("report")).meta.guid


async def test_hidden_values_are_for_admin_alone(served: Served) -> None:
    """In every answer that shows an action; and the marker is not stored."""
    effect = Python(function="login", kwargs={"password": "s3cret"})
    await served.app.scheduler.create(Request(id="hidden", spec=Spec(action=effect)))
    reader = bearing(await token_for(served, "reader", "read", "write"))
    admin = bearing(await token_for(served, "root", "admin"))
    async with (
        serving(served.app, ServerConfig(grpc_port=0, redact=("args.password",))) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        stub: Any = SchedulerServiceStub(channel)
        asked = pb.GetRequest(id="hidden")
        assert "s3cret" in str(await stub.Get(asked, metadata=admin))
        found = await stub.Get(asked, metadata=reader)
        paused = await stub.Pause(pb.PauseRequest(id="hidden"), metadata=reader)
        page = await stub.List(pb.ListRequest(), metadata=reader)
        seen = await anext(aiter(stub.Watch(pb.WatchRequest(id="hidden"), metadata=reader)))
        for answer in (found, paused, page, seen):
            assert "s3cret" not in str(answer)
            assert "[redacted]" in str(answer)
        back = pb.ReplaceRequest(id="hidden", spec=found.action.spec)
        refused = await refusal_of(stub.Replace(back, metadata=reader))
        assert grpc.StatusCode.INVALID_ARGUMENT == refused.code
        probe = pb.ListRequest(arguments={"password": "s3cret"})
        refused = await refusal_of(stub.List(probe, metadata=reader))
        assert grpc.StatusCode.PERMISSION_DENIED == refused.code
        assert 1 == len((await stub.List(probe, metadata=admin)).actions)


async def test_hidden_values_of_entities_are_for_admin_alone(served: Served) -> None:
    """In every answer that shows one; a test of one, and the marker, are refused."""
    await served.app.entities.put("ad", "ad-1", {"email": "s3cret", "city": "Omsk"})
    writer = bearing(await token_for(served, "writer", "read", "write"))
    admin = bearing(await token_for(served, "root", "admin"))
    async with (
        serving(served.app, ServerConfig(grpc_port=0, redact=("document.email",))) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        stub: Any = EntityServiceStub(channel)
        asked = entity_pb2.GetEntityRequest(kind="ad", id="ad-1")
        assert "s3cret" in str(await stub.GetEntity(asked, metadata=admin))
        found = await stub.GetEntity(asked, metadata=writer)
        page = await stub.ListEntities(entity_pb2.ListEntitiesRequest(kind="ad"), metadata=writer)
        merge = entity_pb2.PatchEntityRequest(kind="ad", id="ad-1", merge_patch=b'{"city": "T"}')
        patched = await stub.PatchEntity(merge, metadata=writer)
        for answer in (found, page, patched):
            assert "s3cret" not in str(answer)
            assert "[redacted]" in str(answer)
        for patch, code in (
            (b'[{"op":"test","path":"/email","value":"s3cret"}]', "PERMISSION_DENIED"),
            (b'[{"op":"add","path":"/email","value":"[redacted]"}]', "INVALID_ARGUMENT"),
        ):
            request = entity_pb2.PatchEntityRequest(kind="ad", id="ad-1", json_patch=patch)
            refused = await refusal_of(stub.PatchEntity(request, metadata=writer))
            assert code == refused.code.name
