"""Targets and secrets in the configuration: read, checked, masked, and filled in workers only."""

from __future__ import annotations

import base64
import pickle
from pathlib import Path

import msgspec
import pytest

from gnomon.app import App
from gnomon.config import Settings, load_settings, show_settings
from gnomon.config.secrets import header_secrets
from gnomon.config.targets import build_targets
from gnomon.executors.http import HttpTarget
from gnomon.model.errors import ConfigurationError
from gnomon.model.secret import Secret, hide, secret_name

KEY = "whsec_" + base64.b64encode(b"canary-key-canary-key-32").decode()
GOOD = """
[targets.hooks]
kind = "http"
url_prefix = "https://a.example/hooks/"
signing_keys = ["secret://hooks", "secret://hooks-next"]

[secrets.hooks]
file = "hooks.key"

[secrets.hooks-next]
env = "HOOKS_NEXT"

[secrets.api]
env = "API_TOKEN"
headers_for = ["api.example", "B.example."]
"""


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hooks.key").write_text(f"{KEY}\n")


def load(toml: str, **environ: str) -> Settings:
    Path("gnomon.toml").write_text(toml)
    return load_settings(environ={"HOOKS_NEXT": KEY, "API_TOKEN": "Bearer canary", **environ})


def test_a_target_is_filled_with_its_secrets() -> None:
    """From a file, without the line's end, and from the environment."""
    settings = load(GOOD)
    targets = build_targets(settings.targets, settings.secrets).of(HttpTarget)
    assert ["hooks"] == list(targets)
    assert (KEY, KEY) == tuple(key.reveal() for key in targets["hooks"].signing_keys)
    assert "https://a.example/hooks/" == targets["hooks"].url_prefix


def test_header_secrets_are_those_with_hosts() -> None:
    found = header_secrets(load(GOOD).secrets)
    assert {"api": frozenset({"api.example", "b.example"})} == {
        name: secret.hosts for name, secret in found.items()
    }
    assert "Bearer canary" == found["api"].value.reveal()


def test_secrets_are_named_and_never_shown() -> None:
    """`gnomon config show`, `repr` of everything, before and after they are filled in."""
    literal = (
        f'[targets.literal]\nkind = "http"\nurl_prefix = "https://b/"\nsigning_keys = ["{KEY}"]'
    )
    settings = load(GOOD + literal)
    shown = {item.path: (item.value, item.source) for item in show_settings(settings)}
    source = "file gnomon.toml"
    assert ("secret://hooks,secret://hooks-next", source) == shown["targets.hooks.signing_keys"]
    assert ("***", source) == shown["targets.literal.signing_keys"]
    assert ("http", source) == shown["targets.hooks.kind"]
    assert ("hooks.key", source) == shown["secrets.hooks.file"]
    assert ("api.example,B.example.", source) == shown["secrets.api.headers_for"]
    targets = build_targets(settings.targets, settings.secrets)
    everything = repr((
        settings, shown, targets, targets.of(HttpTarget), header_secrets(settings.secrets),
    ))  # fmt: skip
    assert "canary" not in everything
    assert KEY not in everything
    assert "Targets(hooks, literal)" == repr(targets)


def test_a_process_without_a_worker_needs_no_secret() -> None:
    """Only that it is defined; whether it can be read is the worker's concern."""
    Path("hooks.key").unlink()
    settings = load(GOOD)
    with pytest.raises(ConfigurationError, match=r"^secrets\.hooks\.file"):
        build_targets(settings.targets, settings.secrets)


HTTP = '[targets.a]\nkind = "http"\nurl_prefix = "https://a/"\nsigning_keys = ["secret://k"]\n'
SECRET = '[secrets.k]\nenv = "HOOKS_NEXT"\n'


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("targets = 5", r"must be a table \(\[targets\]\)"),
        ("[targets]\na = 5", r"\[targets\.a\]"),
        ("[targets.a]", "needs a kind"),
        ('[targets.a]\nkind = "htp"', "did you mean 'http'"),
        ("[targets.a]\nkind = 5", "no kind 5"),
        ('[targets."a b"]\nkind = "http"', "1 to 64 characters"),
        (f"{HTTP}url_prefx = 'x'\n{SECRET}", r"targets\.a\.url_prefx: .*did you mean 'url_prefix'"),
        (f"{HTTP}name = 'x'\n{SECRET}", "no such option"),
        (HTTP, r"there is no \[secrets\.k\]"),
        ('[targets.a]\nkind = "http"\nurl_prefix = "https://a/"', "signing_keys: is missing"),
        ('[targets.a]\nkind = "http"\nurl_prefix = "secret://k"', "shown openly.*signing_keys"),
        ('[targets.a]\nkind = "http"\nsigning_keys = [5]', "must be text, or secret://name"),
        ('[targets.a]\nkind = "http"\nsigning_keys = ["secret://a b"]', "name of a secret"),
        ("[secrets]\nk = 5", r"\[secrets\.k\]"),
        ("[secrets.k]", "either file or env"),
        ('[secrets.k]\nfile = "a"\nenv = "B"', "either file or env"),
        ('[secrets.k]\nfiel = "a"', "did you mean 'file'"),
        ('[secrets.k]\nvalue = "canary"', "no such option"),
        ('[secrets.k]\ngiven = "canary"', "no such option"),
        ('[secrets.k]\nenv = "B"\nheaders_for = ["https://a/"]', "is not a host"),
        ('[targts.a]\nkind = "http"', "did you mean 'targets'"),
    ],
)
def test_what_is_wrong_is_named(toml: str, words: str) -> None:
    """When the settings are read, in whatever process, and without the value of anything."""
    with pytest.raises(ConfigurationError, match=words) as caught:
        load(toml)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("toml", "environ", "words"),
    [
        (SECRET.replace("HOOKS_NEXT", "NOT_SET"), {}, "NOT_SET is empty or not set"),
        (SECRET, {"HOOKS_NEXT": ""}, "HOOKS_NEXT is empty or not set"),
        (SECRET, {"HOOKS_NEXT": "a\x00b"}, "NUL"),
        ('[secrets.k]\nfile = "missing"', {}, "missing cannot be read"),
        ('[secrets.k]\nfile = "."', {}, "cannot be read"),
        ('[secrets.k]\nfile = "binary"', {}, "binary cannot be read"),
        ('[secrets.k]\nfile = "long"', {}, "long cannot be read"),
        ('[secrets.k]\nfile = "empty"', {}, "empty is empty"),
    ],
)
def test_a_secret_that_cannot_be_read_is_named(
    toml: str, environ: dict[str, str], words: str
) -> None:
    """When a worker starts."""
    Path("binary").write_bytes(b"canary\xff")
    Path("long").write_text("canary" * 20_000)
    Path("empty").write_text("\n")
    settings = load(HTTP + toml, **environ)
    with pytest.raises(ConfigurationError, match=words) as caught:
        build_targets(settings.targets, settings.secrets)
    assert "canary" not in str(caught.value)


def test_a_header_must_be_sendable() -> None:
    settings = load(
        '[secrets.k]\nenv = "API_TOKEN"\nheaders_for = ["a"]', API_TOKEN="canary\r\nX: y"
    )
    with pytest.raises(ConfigurationError, match="visible ASCII") as caught:
        header_secrets(settings.secrets)
    assert "canary" not in str(caught.value)


def test_targets_are_written_in_the_file_only() -> None:
    with pytest.raises(ConfigurationError, match="in the file only"):
        load("", GNOMON_TARGETS_HOOKS="x")


async def test_a_worker_has_executors_for_the_kinds_of_its_targets() -> None:
    """Each with its targets; a kind without a target is not even loaded."""
    toml = """
    targets.mq = { kind = "rabbitmq", url = "amqp://me:canary@mq.example/" }
    targets.log = { kind = "kafka", bootstrap = "log.example:9092" }
    targets.phones = { kind = "push", url = "https://push.example/" }
    targets.shop = { kind = "sql", dsn = "postgresql://me:canary@db.example/shop" }
    """
    app = App(settings=load(toml))
    found = {effect.__name__: type(made).__name__ for effect, made in app._executors().items()}
    outside = {
        "Rabbitmq": "RabbitmqExecutor",
        "Kafka": "KafkaExecutor",
        "Push": "PushExecutor",
        "Sql": "SqlExecutor",
    }
    assert outside == {name: made for name, made in found.items() if name in (*outside, "Grpc")}
    assert {"Http", "Python", "Mock"} <= set(found)
    assert "Rabbitmq" not in {effect.__name__ for effect in App(settings=Settings())._executors()}


# -- the type -------------------------------------------------------------------------------------


def test_a_secret_does_not_slip_out() -> None:
    """Not by any way in which values become text or bytes."""
    secret = Secret("canary")
    texts = [repr(secret), str(secret), f"{secret}", f"{secret!r}", f"{secret:>20}", "%s" % secret]  # noqa: UP031
    assert [] == [text for text in texts if "canary" in text]
    for encode in (msgspec.json.encode, msgspec.msgpack.encode, pickle.dumps):
        with pytest.raises(TypeError):
            encode(secret)
    assert not hasattr(secret, "__dict__")


def test_secrets_compare_by_value() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert not Secret("")


def test_a_text_is_shown_without_its_secrets() -> None:
    """Whole ones, and the beginning of one where the text ends."""
    secrets = (Secret("canary-7"), Secret("hidden"))
    assert "you said *** and *** and ***" == hide(
        "you said canary-7 and hidden and canary-7", *secrets
    )
    assert "you said ***" == hide("you said canary", *secrets)
    assert "you can" == hide("you can", *secrets)
    assert "canary-8" == hide("canary-8", *secrets)


def test_names_of_secrets() -> None:
    assert "a.b-c_1" == secret_name("secret://a.b-c_1")
    assert secret_name("Bearer secret://x") is None
    for text in ("secret://", "secret://a/b", "secret://a b"):
        with pytest.raises(ValueError, match="name of a secret"):
            secret_name(text)
