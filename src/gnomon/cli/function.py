"""`gnomon function`: what actions may call, as the programs that serve it describe it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from gnomon.cli import options
from gnomon.cli.output import console, print_json, print_table
from gnomon.model.function import FunctionParameter, FunctionRecord

noun = options.noun("Look at the functions that living programs serve.")


@noun.command(
    "list",
    epilog=options.examples(
        "gnomon function list", "gnomon function list --search mail", "gnomon function list --json"
    ),
)
@options.on_server
def list_functions(
    shared: options.ServerOptions,
    search: Annotated[
        str, typer.Option("--search", metavar="TEXT", help="Only those with this in their names.")
    ] = "",
) -> None:
    """List functions with what they take; none that no program has published for a minute."""
    functions = shared.call(lambda verbs: verbs.reports.functions())
    show_functions([one for one in functions if search in one.name], as_json=shared.json)


def show_functions(functions: Sequence[FunctionRecord], *, as_json: bool) -> None:
    if as_json:
        print_json({"functions": functions})
        return
    if not functions:
        console().print("No living program serves a function: `gnomon worker --import shop:app`.")
        return
    rows = [(signature(one), one.summary, one.program) for one in functions]
    print_table(("function", "", "program"), rows)


def signature(function: FunctionRecord) -> str:
    """As Python writes it, but for its attempt: `welcome(user, language="en")`."""
    by_place = [one for one in function.parameters if one.place is not None]
    by_name = [one for one in function.parameters if one.place is None]
    only = [one for one in by_place if not one.named]
    parts = [parameter_text(one) for one in only]
    parts += ["/"] if only else []
    parts += [parameter_text(one) for one in by_place if one.named]
    parts += ["*", *map(parameter_text, by_name)] if by_name else []
    parts += ["…"] if function.takes_more else []
    return f"{function.name}({', '.join(parts)})"


def parameter_text(parameter: FunctionParameter) -> str:
    if parameter.required:
        return parameter.name
    if parameter.default is msgspec.UNSET:
        return f"{parameter.name}=…"
    return f"{parameter.name}={msgspec.json.encode(parameter.default).decode()}"
