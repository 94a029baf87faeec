"""Arguments that were given by place are found by name as well: published signatures tell it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gnomon.contracts.store import Selection
from gnomon.model.function import FunctionRecord
from gnomon.scheduler.reports import Reports

PLACES_MAX = 20  # functions that have an argument of one name: each is a look at every row


async def with_places(selection: Selection, reports: Reports) -> Selection:
    """The selection that also finds its arguments where they are given by place."""
    if not selection.arguments:
        return selection
    functions = await reports.functions()
    if selection.function is not None:
        functions = [one for one in functions if one.name == selection.function]
    names = {path.partition(".")[0] for path in selection.arguments}
    places = {name: _places_of(name, functions) for name in names}
    return msgspec.structs.replace(selection, places=places)


def _places_of(name: str, functions: Iterable[FunctionRecord]) -> dict[str, int]:
    places = {
        function.name: parameter.place
        for function in functions
        for parameter in function.parameters
        if parameter.name == name and parameter.place is not None
    }
    return dict(sorted(places.items())[:PLACES_MAX])
