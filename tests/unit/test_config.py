"""Settings: sources, their order, what is refused, and what is never shown."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gnomon.config import Settings, environment_of, load_settings, show_settings
from gnomon.config.environment import OTHER_VARIABLES, variable_of
from gnomon.config.page import configuration_page
from gnomon.config.values import read_value
from gnomon.gateways.config import ConsoleConfig
from gnomon.model.errors import ConfigurationError
from gnomon.model.offer import ALL_QUEUES, Offer
from gnomon.stores.config import DatabaseConfig, mask_url

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(
    toml: str = "", environ: dict[str, str] | None = None, flags: dict[str, object] | None = None
) -> Settings:
    if toml:
        Path("gnomon.toml").write_text(toml)
    return load_settings(environ=environ or {}, flags=flags)


def test_later_sources_win_and_are_remembered() -> None:
    """Defaults < file < environment < flags; every setting knows where it came from."""
    toml = "[server]\nport = 1001\n[worker]\nconcurrency = 7\nlease = '20s'\n"
    settings = load(
        toml,
        {"GNOMON_SERVER_PORT": "1002", "GNOMON_WORKER_CONCURRENCY": "8"},
        {"server.port": 1003, "database.url": None},
    )
    assert (1003, 8) == (settings.server.port, settings.worker.concurrency)
    assert timedelta(seconds=20) == settings.worker.lease
    assert "flag" == settings.source_of("server.port")
    assert "environment GNOMON_WORKER_CONCURRENCY" == settings.source_of("worker.concurrency")
    assert "file gnomon.toml" == settings.source_of("worker.lease")
    assert "default" == settings.source_of("database.url")


def test_defaults_need_no_source() -> None:
    settings = load()
    assert "sqlite:///gnomon.db" == settings.database.url
    assert Settings() == settings


@pytest.mark.parametrize(
    ("toml", "environ", "words"),
    [
        ("[worker]\nconcurency = 5", {}, "'worker.concurrency'"),
        ("[wroker]\nlease = 5", {}, "'worker'"),
        ("worker = 5", {}, r"\[worker\]"),
        ("", {"GNOMON_WORKER_LEESE": "5"}, "did you mean GNOMON_WORKER_LEASE"),
        ("", {"GNOMON_WROKER_LEASE": "5"}, "did you mean GNOMON_WORKER_LEASE"),
        ("", {"GNOMON_DATABSE_URL": "x"}, "did you mean GNOMON_DATABASE_URL"),
        ("", {"GNOMON_DATABASE": "x"}, "did you mean GNOMON_DATA"),
        ("", {"GNOMON_TOKN": "x"}, "did you mean GNOMON_TOKEN"),
        ("", {"GNOMON_": "x"}, "GNOMON_: there is no such setting"),
        ("[worker", {}, "not TOML"),
        ("", {"GNOMON_CONFIG": "nowhere.toml"}, "there is no such file"),
    ],
)
def test_unknown_names_are_errors_with_a_suggestion(
    toml: str, environ: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        load(toml, environ)


def test_a_named_file_must_exist() -> None:
    with pytest.raises(ConfigurationError, match="there is no such file"):
        load_settings(file=Path("missing.toml"), environ={})
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory"):
        load_settings(file=Path(), environ={})


def test_two_underscores_are_read_as_one() -> None:
    """As other programs write it; both at once must agree."""
    assert 7 == load(environ={"GNOMON_WORKER__CONCURRENCY": "7"}).worker.concurrency
    both = {"GNOMON_SERVER_PORT": "1001", "GNOMON_SERVER__PORT": "1001"}
    assert 1001 == load(environ=both).server.port
    both["GNOMON_SERVER__PORT"] = "1002"
    with pytest.raises(ConfigurationError, match="GNOMON_SERVER_PORT differ"):
        load(environ=both)


def test_variables_of_others_are_no_settings() -> None:
    """Those of the tests, those that are documented, and those that hold a secret."""
    toml = "[secrets.shop]\nenv = 'GNOMON_SHOP_KEY'\n"
    environ = {"GNOMON_SHOP_KEY": "s", "GNOMON_TEST_POSTGRES": "x", "GNOMON_FAULT_FULL": "1"}
    environ |= dict.fromkeys(OTHER_VARIABLES, "")
    assert Settings().worker == load(toml, environ).worker


def test_what_kubernetes_sets_beside_a_service_is_no_setting() -> None:
    """A service called gnomon, or gnomon-server, must not stop what runs in its namespace."""
    environ = {
        "GNOMON_SERVER_PORT": "tcp://10.0.0.7:8321", "GNOMON_SERVER_SERVICE_HOST": "10.0.0.7",
        "GNOMON_SERVER_SERVICE_PORT": "8321", "GNOMON_SERVER_SERVICE_PORT_HTTP": "8321",
        "GNOMON_SERVER_PORT_8321_TCP": "tcp://10.0.0.7:8321", "GNOMON_PORT": "tcp://10.0.0.7:80",
        "GNOMON_SERVER_PORT_8321_TCP_ADDR": "10.0.0.7", "GNOMON_SERVICE_HOST": "10.0.0.7",
    }  # fmt: skip
    assert Settings() == load(environ=environ)
    with pytest.raises(ConfigurationError, match=r"server\.port"):
        load(environ={"GNOMON_SERVER_PORT": "http"})


def test_variables_in_this_repository_are_known() -> None:
    """What our own files set or read is a setting, or is in the one list."""
    root = Path(__file__).parents[2]
    files = [root / "Makefile", *(root / "scripts").rglob("*"), *(root / "examples").rglob("*.py")]
    texts = [path.read_text() for path in files if path.is_file() and path.suffix != ".pyc"]
    names = {name for text in texts for name in re.findall(r"\bGNOMON_[A-Z_]+", text)}
    load(environ=dict.fromkeys(names - {variable_of("database.url")}, ""))


@pytest.mark.parametrize(
    ("variable", "text", "path"),
    [
        ("GNOMON_WORKER_CONCURRENCY", "many", "worker.concurrency"),
        ("GNOMON_WORKER_CONCURRENCY", "0", "worker.concurrency"),
        ("GNOMON_WORKER_CONCURRENCY", "-1", "worker.concurrency"),
        ("GNOMON_WORKER_LEASE", "soon", "worker.lease"),
        ("GNOMON_WORKER_LEASE", "-5s", "worker.lease"),
        ("GNOMON_DATABASE_PREPARED_STATEMENTS", "maybe", "database.prepared_statements"),
        ("GNOMON_WORKER_QUEUES", "mail=many", "worker.queues.mail"),
        ("GNOMON_WORKER_ONLY_QUEUES", "no name", "worker.only_queues"),
        ("GNOMON_SERVER_PORT", "70000", "server.port"),
        ("GNOMON_SERVER_HOST", "0.0.0.0", "server.host"),
        ("GNOMON_DATABASE_URL", "mysql://host/db", "database.url"),
        ("GNOMON_DATABASE_URL", "gnomon.db", "database.url"),
        ("GNOMON_DATABASE_SCHEMA", 'x"; DROP', "database.schema"),
        ("GNOMON_DATABASE_SHARD_COUNT", "0", "database.shard_count"),
        ("GNOMON_LOG_LEVEL", "loud", "log.level"),
    ],
)
def test_bad_values_name_their_setting(variable: str, text: str, path: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(environ={variable: text})
    assert path == caught.value.path


@pytest.mark.parametrize(
    "name",
    [
        *(f"worker.{name}" for name in ("window", "silent", "step_down", "sweep", "helpers")),
        *(f"worker.{name}" for name in ("begin_batch", "move_batch", "finish_batch")),
        *(f"stages.{name}" for name in ("grain", "claim_ahead", "commit_batch", "relay_batch")),
    ],
)
def test_constants_are_no_settings(name: str) -> None:
    """What nobody should turn is refused as unknown, in the file and in the environment."""
    section, _, key = name.partition(".")
    with pytest.raises(ConfigurationError, match="no such setting"):
        load(f"[{section}]\n{key} = 1\n")
    with pytest.raises(ConfigurationError, match="no such setting"):
        load(environ={f"GNOMON_{section.upper()}_{key.upper()}": "1"})


@pytest.mark.parametrize(
    ("toml", "path"), [("lease = '3s'", "worker.lease"), ("heartbeat = '1s'", "worker.heartbeat")]
)
def test_settings_fit_the_constants(toml: str, path: str) -> None:
    """A worker steps down before its lease ends, and is not silent between two heartbeats."""
    with pytest.raises(ConfigurationError) as caught:
        load(f"[worker]\n{toml}\n")
    assert path == caught.value.path


def test_relations_are_checked_at_start() -> None:
    """A heartbeat must fit three times into a lease."""
    with pytest.raises(ConfigurationError, match="third"):
        load("[worker]\nheartbeat = '5s'\nlease = '10s'\n")


@pytest.mark.parametrize(
    ("text", "found"),
    [("30s", 30), ("1m30s", 90), ("45", 45), (45, 45), ("PT1M", 60), (0.5, 0.5)],
)
def test_durations_as_people_write_them(text: object, found: float) -> None:
    settings = load(flags={"scheduler.retention": text})
    assert timedelta(seconds=found) == settings.scheduler.retention


@pytest.mark.parametrize(
    ("text", "found"),
    [("1MiB", 2**20), ("64KiB", 65536), ("2MB", 2_000_000), ("1_000", 1000), (7, 7), ("12B", 12)],
)
def test_sizes_as_people_write_them(text: object, found: int) -> None:
    assert found == read_value(DatabaseConfig, "pool_size", text, path="x")


def test_tables_come_from_toml_and_from_text() -> None:
    assert {"mail": 5} == load("[worker]\nqueues = { mail = 5 }").worker.queues
    found = load(environ={"GNOMON_WORKER_QUEUES": "mail=5, slow=0"}).worker.queues
    assert {"mail": 5, "slow": 0} == found


def test_a_worker_serves_all_queues_but_those_it_refuses() -> None:
    """By name, or by the number of slots; the others are told."""
    config = load('[worker]\nonly_queues = ["mail", "slow"]\nqueues = { slow = 2 }').worker
    slots = [config.concurrency_of(name) for name in ("mail", "slow", "default")]
    assert [config.concurrency, 2, 0] == slots
    assert Offer(only=("mail", "slow")) == config.offer
    assert Offer(never=("slow",)) == load("[worker]\nqueues = { slow = 0 }").worker.offer
    assert ALL_QUEUES == load("[worker]").worker.offer


def test_a_queue_is_not_served_and_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match=r"worker\.queues\.mail is 0"):
        load('[worker]\nonly_queues = ["mail"]\nqueues = { mail = 0 }')


# -- secrets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:canary@host/db",
        "postgresql://me:can:canary@host:5432/db",
        "postgresql://me:canary@x@host/db",
        "postgresql://host/db?user=me&password=canary",
    ],
)
def test_passwords_are_never_shown(url: str) -> None:
    """Not in repr, not in `config show`, not in an error."""
    settings = load(flags={"database.url": url})
    shown = {item.path: item.value for item in show_settings(settings)}
    assert "canary" not in repr(settings)
    assert "canary" not in str(shown)
    assert "***" in shown["database.url"]
    with pytest.raises(ConfigurationError) as caught:
        load(flags={"database.url": url.replace("postgresql", "mysql")})
    assert "canary" not in str(caught.value)


def test_mask_leaves_other_urls_alone() -> None:
    for url in ("sqlite:///gnomon.db", "postgresql://me@host:5432/db", "sqlite:////a:b@c/d"):
        assert url == mask_url(url)


def test_password_file_completes_the_url() -> None:
    """The password comes from a file, is quoted, and is masked."""
    Path("secret").write_text("ca/na@ry\n")
    settings = load(
        flags={"database.url": "postgresql://me@host/db", "database.password_file": "secret"}
    )
    assert "postgresql://me:ca%2Fna%40ry@host/db" == settings.database.url
    assert "ca%2F" not in str(show_settings(settings))
    with pytest.raises(ConfigurationError, match="missing"):
        load(flags={"database.url": "postgresql://h/d", "database.password_file": "missing"})


def test_data_folder_holds_the_default_file(tmp_path: Path) -> None:
    settings = load(environ={"GNOMON_DATA": str(tmp_path)})
    assert f"sqlite:///{tmp_path}/gnomon.db" == settings.database.url
    assert "environment GNOMON_DATA" == settings.source_of("database.url")


def test_children_get_the_database_by_environment() -> None:
    """An argument would show the password to everybody on the machine."""
    settings = load(flags={"database.url": "postgresql://me:pw@host/db"})
    assert "postgresql://me:pw@host/db" == environment_of(settings)["GNOMON_DATABASE_URL"]


def test_reference_is_in_step() -> None:
    """docs/reference/configuration.md is the dataclasses."""
    assert configuration_page() == PAGE.read_text(), "run `make docs`"


@pytest.mark.parametrize(
    "wrong",
    [
        {"color": "pink"},
        {"name": "x" * 41},
        {"name": "a\nb"},
        {"others": {"live": "javascript:alert(1)"}},
        {"others": {"live": "https://user:pass@example.org/"}},
        {"others": {"live": "//example.org"}},
        {"others": {"live": "https://example.org/#x"}},
        {"others": {"live": "https://[::1"}},
        {"others": {f"n{number}": "https://example.org/" for number in range(51)}},
    ],
)
def test_a_console_links_to_consoles_alone(wrong: dict[str, Any]) -> None:
    """What else might stand there is refused at the start."""
    with pytest.raises(ConfigurationError, match=r"^console\."):
        ConsoleConfig(**wrong)
