"""`gnomon token`: who may call a server. Straight at the database: who can do this is its owner."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

import typer

from gnomon.app import App
from gnomon.cli import options
from gnomon.cli.output import from_now, moment, print_json, print_table, say
from gnomon.clock import SystemEntropy
from gnomon.contracts.store import Token
from gnomon.gateways.auth import issue
from gnomon.model.duration import parse_duration
from gnomon.model.errors import NotFound

noun = options.noun("Create, rotate and revoke tokens, straight at the database.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Whom the token is for.")]
Scope = Annotated[
    list[str],
    typer.Option(
        "--scope",
        metavar="SCOPE",
        help="read, write, sql:<target>, table:<task table> or admin; repeatable.",
    ),
]
Expires = Annotated[
    str | None,
    typer.Option(
        "--expires", metavar="DURATION", help="Valid for this long; by default until it is revoked."
    ),
]
OVERLAP = "1h"


def _lifetime(text: str | None) -> timedelta | None:
    return None if text is None else parse_duration(text, "--expires")


@noun.command(
    "create",
    epilog=options.examples(
        "gnomon token create shop --scope read --scope write",
        "gnomon token create report --scope read --expires 90d --rate 5",
        "gnomon token create shop --scope write --live-max 100000",
    ),
)
@options.on_database
def create(
    shared: options.DatabaseOptions,
    name: Name,
    scope: Scope,
    expires: Expires = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate", metavar="N", help="At most this many requests a second, per server process."
        ),
    ] = None,
    live_max: Annotated[
        int | None,
        typer.Option(
            "--live-max", metavar="N", help="At most this many active and paused actions."
        ),
    ] = None,
) -> None:
    """Create a token. It is shown once: only its hash is kept."""
    text, draft = issue(
        name, scope, entropy=SystemEntropy(), lifetime=_lifetime(expires), rate=rate,
        live_max=live_max,
    )  # fmt: skip
    token = shared.work(lambda app: app.store.tokens.create(draft))
    _show_new(text, token, as_json=shared.json)


@noun.command(
    "rotate",
    epilog=options.examples(
        "gnomon token rotate shop", "gnomon token rotate shop --overlap 1d --expires 90d"
    ),
)
@options.on_database
def rotate(
    shared: options.DatabaseOptions,
    name: Name,
    overlap: Annotated[
        str, typer.Option("--overlap", metavar="DURATION", help="How long the old one stays valid.")
    ] = OVERLAP,
    expires: Expires = None,
) -> None:
    """Create the next token of a name, with its scopes and limits; the old one ends soon."""
    text, token = shared.work(
        lambda app: _rotate(app, name, parse_duration(overlap, "--overlap"), _lifetime(expires)),
    )
    _show_new(text, token, as_json=shared.json)


async def _rotate(
    app: App, name: str, overlap: timedelta, lifetime: timedelta | None
) -> tuple[str, Token]:
    before = [token for token in await app.store.tokens.list() if token.name == name]
    if not before:
        raise NotFound("token", name)
    newest = before[-1]
    text, draft = issue(
        name, newest.scopes, entropy=SystemEntropy(), lifetime=lifetime, rate=newest.rate,
        live_max=newest.live_max,
    )  # fmt: skip
    return text, await app.store.tokens.rotate(draft, overlap=overlap)


@noun.command("list", epilog=options.examples("gnomon token list", "gnomon token list --json"))
@options.on_database
def list_tokens(
    shared: options.DatabaseOptions,
) -> None:
    """Show all tokens, revoked and expired ones too; never their text."""
    tokens = shared.work(lambda app: app.store.tokens.list())
    if shared.json:
        print_json({"tokens": [_plain(token) for token in tokens]})
    else:
        _show_table(tokens)


@noun.command("revoke", epilog=options.examples("gnomon token revoke shop"))
@options.on_database
def revoke(
    shared: options.DatabaseOptions,
    name: Name,
) -> None:
    """End all tokens of a name. Servers notice within seconds."""
    count = shared.work(lambda app: app.store.tokens.revoke(name))
    if not count:
        raise NotFound("valid token", name)
    shared.tell({"revoked": count}, f"revoked {count} of {name}")


# -- output ---------------------------------------------------------------------------------------


def _show_new(text: str, token: Token, *, as_json: bool) -> None:
    if as_json:
        print_json({"token": text, **_plain(token)})
        return
    until = "until it is revoked" if token.expires_at is None else f"until {_until(token)}"
    say(f"{token.name} may {', '.join(token.scopes)}, {until}. This is shown once:")
    print(text)


def _until(token: Token) -> str:
    return f"{moment(token.expires_at)} ({from_now(token.expires_at)})"


def _plain(token: Token) -> dict[str, object]:
    """What may be shown: not even the digest."""
    return {
        "id": token.id,
        "name": token.name,
        "scopes": token.scopes,
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "revoked_at": token.revoked_at,
        "rate": token.rate,
        "live_max": token.live_max,
    }


def _show_table(tokens: Sequence[Token]) -> None:
    rows = [
        (
            token.name,
            " ".join(token.scopes),
            _until(token) if token.expires_at else "",
            token.revoked_at,
            token.rate,
            token.live_max,
            token.created_at,
        )
        for token in tokens
    ]
    columns = ("name", "scopes", "expires", "revoked", "rate", "live max", "created")
    print_table(columns, rows)
