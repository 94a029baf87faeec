"""`gnomon entity`: put, patch, look at and remove entities; why one is where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from gnomon.cli import options
from gnomon.cli.connection import EntityVerbs
from gnomon.cli.input import chunks, numbered_lines, read_place
from gnomon.cli.output import console, moment, print_json, print_table, progress, readable, say
from gnomon.contracts.store.entities import Entity
from gnomon.model.codec import parse_json
from gnomon.model.errors import GnomonError, InvalidRequest
from gnomon.model.ids import EntityKey, action_id
from gnomon.model.stage.json_patch import DOCUMENT_BYTES_MAX
from gnomon.telemetry.lines import printable

KEYS_MAX = 50_000
LINE_ROOM = 1024  # of a line, beside its document
CHUNK_ITEMS = 500

noun = options.noun("Put, patch, look at and remove entities; see why one is where it is.")

Kind = Annotated[str, typer.Argument(metavar="KIND", help="The kind of entities, such as ad.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The entity's id.")]
JsonText = Annotated[
    str, typer.Argument(metavar="JSON", help="The JSON itself, @FILE, or - for standard input.")
]
IfVersion = Annotated[
    int | None,
    typer.Option("--if-version", metavar="N", help="Change it only if it is at this version."),
]


def read_json(text: str) -> Any:
    """JSON that stands in place, in a file, or comes in. Errors: InvalidRequest."""
    is_elsewhere = text == "-" or text.startswith("@")
    raw = read_place(text.removeprefix("@")) if is_elsewhere else text.encode()
    return parse_json(raw, bytes_max=DOCUMENT_BYTES_MAX, keys_max=KEYS_MAX)


# -- change ---------------------------------------------------------------------------------------


@noun.command(
    "put",
    epilog=options.examples(
        """gnomon entity put ad ad-1 '{"make": "Lada", "price": 410000}'""",
        "gnomon entity put ad ad-1 @ad.json --if-version 0",
    ),
)
@options.on_server
def put(
    shared: options.ServerOptions,
    kind: Kind,
    id: Id,
    document: JsonText,
    if_version: IfVersion = None,
) -> None:
    """Create an entity, or give it a new document; with --if-version 0 only create."""
    given = read_json(document)
    entity = shared.call_entities(lambda verbs: verbs.put(kind, id, given, if_version=if_version))
    show_changed(entity, as_json=shared.json)


@noun.command("put-many", epilog=options.examples("gnomon entity put-many ad ads.jsonl"))
@options.on_server
def put_many(
    shared: options.ServerOptions,
    kind: Kind,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help='Lines of {"id": …, "document": {…}}; - for standard input.'
        ),
    ],
) -> None:
    """Create or replace many entities of one kind. A line that is not valid is named, and nothing
    is stored."""
    from gnomon.stages.codec import encode_document

    documents = _read_lines(file)
    sized = [((id, document), len(encode_document(document))) for id, document in documents.items()]

    async def put_all(verbs: EntityVerbs) -> int:
        changed = 0
        with progress() as bar:
            shown = bar.add_task("putting", total=len(documents))
            for chunk in chunks(sized, count_max=CHUNK_ITEMS):
                changed += await verbs.put_many(kind, dict(chunk))
                bar.advance(shown, len(chunk))
        return changed

    changed = shared.call_entities(put_all)
    unchanged = len(documents) - changed
    shared.tell(
        {"changed": changed, "unchanged": unchanged}, f"{changed} changed, {unchanged} as they were"
    )


def _read_lines(path: Path) -> dict[str, Any]:
    """Errors: InvalidRequest, naming the line."""
    documents: dict[str, Any] = {}
    for number, line in numbered_lines(read_place(str(path))):
        try:
            item = parse_json(line, bytes_max=DOCUMENT_BYTES_MAX + LINE_ROOM, keys_max=KEYS_MAX)
            if not isinstance(item, dict) or item.keys() != {"id", "document"}:
                raise InvalidRequest('must be {"id": …, "document": {…}}')
            entity_id = action_id(item["id"])
            if entity_id in documents:
                raise InvalidRequest(f"has the id {entity_id} again")
        except GnomonError as exc:
            raise InvalidRequest(f"line {number}: {exc}") from None
        documents[entity_id] = item["document"]
    return documents


@noun.command(
    "patch",
    epilog=options.examples(
        """gnomon entity patch ad ad-1 '{"price": 400000, "video": null}'""",
        """gnomon entity patch ad ad-1 '[{"op": "test", "path": "/price", "value": 400000}]'""",
    ),
)
@options.on_server
def patch(
    shared: options.ServerOptions,
    kind: Kind,
    id: Id,
    patch: JsonText,
    if_version: IfVersion = None,
) -> None:
    """Change some of an entity: an object is a JSON merge patch, a list a JSON patch."""
    given = read_json(patch)
    if not isinstance(given, dict | list):
        raise InvalidRequest("a patch is an object (merge patch) or a list (JSON patch)")
    entity = shared.call_entities(lambda verbs: verbs.patch(kind, id, given, if_version=if_version))
    show_changed(entity, as_json=shared.json)


@noun.command("delete", epilog=options.examples("gnomon entity delete ad ad-1"))
@options.on_server
def delete(
    shared: options.ServerOptions,
    kind: Kind,
    id: Id,
    if_version: IfVersion = None,
) -> None:
    """Remove an entity from all queues, with its timers."""
    shared.call_entities(lambda verbs: verbs.delete(kind, id, if_version=if_version))
    shared.tell({"deleted": id}, f"{EntityKey(kind, id)}: deleted")


@noun.command(
    "release",
    epilog=options.examples(
        "gnomon entity release ad ad-1", "gnomon entity release ad ad-1 --stage photos"
    ),
)
@options.on_server
def release(
    shared: options.ServerOptions,
    kind: Kind,
    id: Id,
    stage: Annotated[
        str | None, typer.Option("--stage", metavar="NAME", help="Only this stage.")
    ] = None,
) -> None:
    """Let stages that gave an entity up look at it again, and tell them of its saves."""
    released = shared.call_entities(lambda verbs: verbs.release(kind, id, stage))
    shared.tell({"released": released}, f"{EntityKey(kind, id)}: released {released}")


# -- look -----------------------------------------------------------------------------------------


@noun.command("get", epilog=options.examples("gnomon entity get ad ad-1"))
@options.on_server
def get(
    shared: options.ServerOptions,
    kind: Kind,
    id: Id,
) -> None:
    """Show an entity's document; with --json with its version."""
    entity = shared.call_entities(lambda verbs: verbs.get(kind, id))
    print_json(shown(entity) if shared.json else shown(entity).document)


@noun.command(
    "list", epilog=options.examples("gnomon entity list ad --id-prefix ad- --limit 20 --after ad-7")
)
@options.on_server
def list_entities(
    shared: options.ServerOptions,
    kind: Kind,
    prefix: Annotated[
        str, typer.Option("--id-prefix", metavar="TEXT", help="With ids that begin with this.")
    ] = "",
    after: Annotated[
        str | None, typer.Option("--after", metavar="ID", help="Go on after this id.")
    ] = None,
    limit: options.Limit = 100,
) -> None:
    """List the entities of one kind in order of id."""
    page = shared.call_entities(
        lambda verbs: verbs.page(kind, after=after, prefix=prefix, limit=limit)
    )
    if shared.json:
        print_json({"entities": [shown(entity) for entity in page.entities], "next": page.next})
        return
    rows = [(entity.id, entity.version, entity.changed_at, entity.doc) for entity in page.entities]
    print_table(("id", "version", "changed", "document"), rows)
    if page.next is not None:
        say(f"more: --after {page.next}")


@noun.command("explain", epilog=options.examples("gnomon entity explain ad ad-1"))
@options.on_server
def explain(
    shared: options.ServerOptions,
    kind: Kind,
    id: Id,
) -> None:
    """Say why an entity is in which queue, by what chain, and what it waits for."""
    explanation = shared.call_entities(lambda verbs: verbs.explain(kind, id))
    if shared.json:
        print_json(explanation)
    else:
        for line in str(explanation).splitlines():
            console().print(Text(printable(readable(line))), soft_wrap=True)


@noun.command(
    "parked",
    epilog=options.examples(
        "gnomon entity parked", "gnomon entity parked --kind ad --stage photos --json"
    ),
)
@options.on_server
def parked(
    shared: options.ServerOptions,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help="Only of this kind.")
    ] = None,
    stage: Annotated[
        str | None, typer.Option("--stage", metavar="NAME", help="Only of this stage.")
    ] = None,
    limit: options.Limit = 100,
) -> None:
    """List what waits for a person: entities that failed too often in a stage or were in a loop,
    and saves that its `after_save` did not take (undelivered)."""
    rows = shared.call_entities(lambda verbs: verbs.parked(kind=kind, stage=stage, limit=limit))
    if shared.json:
        print_json({"parked": rows})
        return
    columns = ("kind", "id", "stage", "status", "since", "failures", "error")
    print_table(
        columns,
        [(r.kind, r.entity_id, r.stage, r.status, r.since, r.attempts, r.error) for r in rows],
    )


def shown(entity: Entity) -> Any:
    """An entity as JSON shows it."""
    from gnomon.gateways.entities import show_entity

    return show_entity(entity)


def show_changed(entity: Entity, *, as_json: bool) -> None:
    """What a change made of it."""
    if as_json:
        print_json(shown(entity))
    else:
        say(f"{entity.key}: version {entity.version}, changed {moment(entity.changed_at)}")
