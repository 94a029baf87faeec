"""Twenty planted secrets, found nowhere: not in logs, errors, metrics, rows or `repr`."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gnomon.app import App
from gnomon.config import load_settings
from gnomon.config.secrets import header_secrets
from gnomon.config.targets import build_targets
from gnomon.model.errors import ConfigurationError
from tests.fixtures.receiver import Receiver, receiving
from tests.fixtures.up import Up, clean_environment, gnomon_up

SECRET_NAMES = (
    "signing-file", "signing-env", "signing-literal", "header-file", "header-env", "header-echoed",
    "header-elsewhere", "amqp-secret", "amqp-literal", "kafka-password", "grpc-token", "push-token",
    "unused",
)  # fmt: skip
# What users send is theirs to see again in their action, and nobody's to read in a log.
PAYLOAD_NAMES = ("query", "header-value", "body", "args", "kwargs")
REFUSED_NAMES = ("refused-header", "refused-url")


def canary(name: str) -> str:
    """Recognizable, and a good signing key."""
    return base64.b64encode(f"canary-{name}".ljust(30, "=").encode()).decode()


CANARIES = {name: canary(name) for name in (*SECRET_NAMES, *PAYLOAD_NAMES, *REFUSED_NAMES)}
HIDDEN = {name: CANARIES[name] for name in (*SECRET_NAMES, *REFUSED_NAMES)}

TOML = """
[log]
level = "debug"

[targets.hooks]
kind = "http"
url_prefix = "{receiver}/"
signing_keys = ["secret://signing-file", "secret://signing-env", "{signing_literal}"]

[targets.mq]
kind = "rabbitmq"
url = "secret://amqp-secret"

[targets.mq2]
kind = "rabbitmq"
url = "amqp://user:{amqp_literal}@127.0.0.1:9/"

[targets.log]
kind = "kafka"
bootstrap = "127.0.0.1:9"
username = "me"
password = "secret://kafka-password"

[targets.handlers]
kind = "grpc"
address = "127.0.0.1:9"
tls = false
token = "secret://grpc-token"

[targets.phones]
kind = "push"
url = "{receiver}/echo"
token = "secret://push-token"

[secrets]
signing-file = {{ file = "signing-file" }}
signing-env = {{ env = "SIGNING_ENV" }}
header-file = {{ file = "header-file", headers_for = ["127.0.0.1"] }}
header-env = {{ env = "HEADER_ENV", headers_for = ["127.0.0.1"] }}
header-echoed = {{ env = "HEADER_ECHOED", headers_for = ["127.0.0.1"] }}
header-elsewhere = {{ env = "HEADER_ELSEWHERE", headers_for = ["api.example"] }}
amqp-secret = {{ env = "AMQP_SECRET" }}
kafka-password = {{ env = "KAFKA_PASSWORD" }}
grpc-token = {{ env = "GRPC_TOKEN" }}
push-token = {{ env = "PUSH_TOKEN" }}
unused = {{ env = "UNUSED" }}
"""


def plant(folder: Path, receiver: str) -> tuple[str, dict[str, str]]:
    """The settings and the environment with all of them."""
    for name in ("signing-file", "header-file"):
        (folder / name).write_text(CANARIES[name])
    names = ("signing-env", "header-env", "header-echoed", "header-elsewhere", "kafka-password",
             "grpc-token", "push-token", "unused")  # fmt: skip
    environ = {name.upper().replace("-", "_"): CANARIES[name] for name in names}
    environ["AMQP_SECRET"] = f"amqp://user:{CANARIES['amqp-secret']}@127.0.0.1:9/"
    literals = {name.replace("-", "_"): value for name, value in CANARIES.items()}
    return TOML.format(receiver=receiver, **literals), environ


def use(up: Up, receiver: str) -> list[str]:
    """Actions that use every secret, in ways that end well and in ways that do not."""
    good = {"header-file": "x-file", "header-env": "x-env"}
    headers = {header: f"secret://{name}" for name, header in good.items()}
    post = {"type": "http", "method": "POST"}
    effects = {
        "good": {**post, "url": f"{receiver}/ok", "headers": headers},
        "echoed": {
            **post, "url": f"{receiver}/echo",
            "headers": {"authorization": "secret://header-echoed"},
        },
        "elsewhere": {**post, "url": f"{receiver}/ok", "headers": {"a": "secret://header-elsewhere"}},
        "unknown": {**post, "url": f"{receiver}/ok", "headers": {"a": "secret://unused"}},
        "query": {**post, "url": f"http://127.0.0.1:9/?q={CANARIES['query']}"},
        "payload": {
            **post, "url": f"{receiver}/reset", "headers": {"x": CANARIES["header-value"]},
            "body": CANARIES["body"],
        },
        "hang": {**post, "url": f"{receiver}/hang", "json": [CANARIES["body"]]},
        "args": {"type": "python", "function": "nobody", "args": [CANARIES["args"]],
                 "kwargs": {"k": CANARIES["kwargs"]}},
        "mq": {"type": "rabbitmq", "target": "mq", "routing_key": "q", "body": "x"},
        "mq2": {"type": "rabbitmq", "target": "mq2", "routing_key": "q", "body": "x"},
        "kafka": {"type": "kafka", "target": "log", "topic": "t", "value": "x"},
        "grpc": {"type": "grpc", "target": "handlers", "handler": "h", "payload": 1},
        "push": {"type": "push", "target": "phones", "user": "ann", "payload": 1, "ttl": "1m"},
    }  # fmt: skip
    for name, effect in effects.items():
        spec = {"action": effect, "timeout": "3s"}
        status, text = up.call("POST", "/v1/actions", {"id": name, "spec": spec})
        assert 201 == status, text
    served = [name for name in effects if name != "args"]
    states = {name: up.ended(name)["state"] for name in served}
    assert {**dict.fromkeys(served, "dead"), "good": "done"} == states
    # A function that nobody has is handed back, and waits.
    assert "function nobody" == json.loads(up.call("GET", "/v1/actions/args")[1])["status"]["need"]
    return list(effects)


def refusals(up: Up) -> list[str]:
    """Error bodies of requests with secrets in them."""
    bad_header, bad_url = CANARIES["refused-header"], CANARIES["refused-url"]
    http = {"type": "http", "method": "GET", "url": "https://a.example/"}
    bodies: list[object] = [
        {"spec": {"action": {**http, "headers": {"a": f"{bad_header}\n"}}}},
        {"spec": {"action": {**http, "headers": {"cookie": bad_header}}}},
        {"spec": {"action": {**http, "url": f"https://user:{bad_url}@a.example/"}}},
        {"spec": {"action": {**http, "url": f"ftp://a.example/{bad_url}"}}},
        {"spec": {"action": {**http, "headers": {"a": f"secret://{bad_header} x"}}}},
        f'{{"spec": {{"action": "{bad_header}'.encode(),
    ]
    found = [up.call("POST", "/v1/actions", body) for body in bodies]
    assert [] == [text for status, text in found if not 400 <= status < 500]
    return [text for _, text in found]


def rows(folder: Path) -> bytes:
    """All that is stored, as it is on the disk."""
    return b"".join(path.read_bytes() for path in folder.glob("gnomon.db*"))


def found_in(text: str, canaries: dict[str, str]) -> list[str]:
    return [name for name, value in canaries.items() if value in text]


@pytest.fixture
async def receiver() -> Receiver:  # type: ignore[misc]
    async with receiving() as found:
        yield found


@pytest.mark.slow
async def test_no_canary_is_seen(tmp_path: Path, receiver: Receiver) -> None:
    """All of them are used; none is in a log, an error body, the metrics, a row or an answer."""
    toml, environ = plant(tmp_path, receiver.url)
    assert 20 == len(set(CANARIES.values()))

    def work() -> tuple[str, str, bytes]:
        with gnomon_up(tmp_path, toml, environ) as up:
            names = use(up, receiver.url)
            told = refusals(up)
            metrics = up.call("GET", "/metrics")[1]
            actions = [up.call("GET", f"/v1/actions/{name}")[1] for name in names]
            actions += [up.call("GET", f"/v1/actions/{name}/attempts")[1] for name in names]
            stored = rows(tmp_path)
        return "".join([up.written(), metrics, *told]), "".join(actions), stored + rows(tmp_path)

    written, shown, stored = await asyncio.to_thread(work)
    assert [] == found_in(written, CANARIES)
    assert [] == found_in(shown, HIDDEN)
    assert [] == found_in(stored.decode("latin-1"), HIDDEN)

    # The search finds what is there, and the secrets were where they belong.
    assert list(PAYLOAD_NAMES) == found_in(stored.decode("latin-1"), CANARIES)
    assert "http.call_failed" in written
    sent = "".join(str(dict(request.headers)) for request in receiver.requests)
    used = ["header-file", "header-env", "header-echoed", "push-token"]
    assert used == [name for name in used if CANARIES[name] in sent]
    assert [] == found_in(sent, {name: CANARIES[name] for name in ("unused", "header-elsewhere")})
    assert "***" in shown


def gnomon(folder: Path, environ: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "gnomon", *arguments], cwd=folder, text=True, capture_output=True,
        env=clean_environment(**environ), timeout=200, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_commands_show_no_canary(tmp_path: Path) -> None:
    """`config show` in both forms, and commands that fail because of a password or a secret."""
    toml, environ = plant(tmp_path, "http://127.0.0.1:9")
    (tmp_path / "gnomon.toml").write_text(toml)
    dsn = {"GNOMON_DATABASE_URL": f"postgresql://me:{CANARIES['unused']}@127.0.0.1:9/x"}
    bad_key = {**environ, "SIGNING_ENV": f"{CANARIES['unused']}!"}
    told = {
        "show": gnomon(tmp_path, environ, "config", "show"),
        "json": gnomon(tmp_path, environ, "config", "show", "--json"),
        "dsn": gnomon(tmp_path, {**environ, **dsn}, "config", "show"),
        "doctor": gnomon(tmp_path, {**environ, **dsn}, "doctor"),
        "worker": gnomon(tmp_path, bad_key, "worker", "--database", "sqlite:///w.db"),
    }
    assert "secret://signing-file" in told["show"]
    assert "***" in json.loads(told["json"])["targets.mq2.url"]["value"]
    assert "targets.hooks.signing_keys: a signing key" in told["worker"]
    assert "error: " in told["doctor"]
    assert {} == {name: found for name, text in told.items() if (found := found_in(text, CANARIES))}


@pytest.mark.parametrize(
    "break_it",
    [
        lambda toml: toml.replace("signing_keys = [", "signing_keys = [["),
        lambda toml: toml.replace("url = \"amqp://", "url = \"http://"),
        lambda toml: toml.replace("url = \"amqp://", "ulr = \"amqp://"),
        lambda toml: toml.replace('"rabbitmq"\nurl = "amqp', '"http"\nurl = "amqp'),
        lambda toml: toml.replace("secret://grpc-token", f"{canary('unused')}\\n"),
        lambda toml: toml + f"\n{canary('unused')}",
    ],
)  # fmt: skip
def test_errors_of_the_settings_show_no_canary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, break_it: Callable[[str], str]
) -> None:
    """Wrong keys, values and kinds are named; what was written there is not repeated."""
    monkeypatch.chdir(tmp_path)
    toml, environ = plant(tmp_path, "http://127.0.0.1:9")
    broken = break_it(toml)
    assert toml != broken
    (tmp_path / "gnomon.toml").write_text(broken)

    def build() -> None:
        settings = load_settings(environ=environ)
        build_targets(settings.targets, settings.secrets)

    with pytest.raises(ConfigurationError) as caught:
        build()
    assert [] == found_in(f"{caught.value!r} {caught.value}", CANARIES)


def test_objects_show_no_canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`repr` of everything that holds one."""
    monkeypatch.chdir(tmp_path)
    toml, environ = plant(tmp_path, "http://127.0.0.1:9")
    (tmp_path / "gnomon.toml").write_text(toml)
    settings = load_settings(environ=environ)
    targets = build_targets(settings.targets, settings.secrets)
    held = [
        settings,
        targets,
        targets._by_class,
        header_secrets(settings.secrets),
        App(settings=settings, migrate=True),
    ]
    assert [] == found_in(repr(held) + str(held), CANARIES)
