"""Arguments by their annotations: written as JSON at the call, read back for the function."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Optional
from uuid import UUID

import msgspec
import pydantic
import pytest

import gnomon
from gnomon.executors.python import Registry
from gnomon.executors.signature import CallSignature, Misfit
from gnomon.model.function import (
    FUNCTIONS_MAX,
    FunctionRecord,
    encode_functions,
    read_functions,
)

if TYPE_CHECKING:
    from fractions import Fraction

ID = UUID("6f2f0a1c-0000-4000-8000-000000000001")
NOON = datetime(2026, 12, 24, 12, 0, 0, 5, tzinfo=UTC)


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Place(NamedTuple):
    x: int
    y: float


@dataclass(frozen=True)
class Line:
    product: UUID
    price: Decimal
    sent_at: datetime | None = None


class Order(msgspec.Struct, frozen=True):
    id: UUID
    lines: tuple[Line, ...] = ()
    tags: frozenset[str] = frozenset()


class User(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    id: UUID
    born: date
    orders: list[Decimal] = []


class Thing:
    """Nothing that JSON could say."""


VALUES: Mapping[str, tuple[Any, object]] = {
    "str": ("Grüße", "Grüße"),
    "int": (7, 7),
    "float": (1.5, 1.5),
    "bool": (True, True),
    "UUID": (ID, str(ID)),
    "datetime": (NOON, "2026-12-24T12:00:00.000005Z"),
    "date": (date(2026, 12, 24), "2026-12-24"),
    "timedelta": (timedelta(minutes=90), "PT5400S"),
    "Decimal": (Decimal("10.50"), "10.50"),
    "Color": (Color.BLUE, "blue"),
    "bytes": (b"\x00\xff", "AP8="),
    "Place": (Place(1, 2.5), [1, 2.5]),
    "tuple[int, str]": ((1, "a"), [1, "a"]),
    "set[int]": ({3, 1}, [1, 3]),
    "frozenset[str]": (frozenset("a"), ["a"]),
    "list[UUID]": ([ID], [str(ID)]),
    "dict[UUID, list[Decimal]]": ({ID: [Decimal(1)]}, {str(ID): ["1"]}),
    "dict[int, Color]": ({7: Color.RED}, {"7": "red"}),
    "Optional[UUID]": (None, None),
    "UUID | None": (ID, str(ID)),
    "int | str | None": ("a", "a"),
    "Literal['a', 'b']": ("b", "b"),
    "Annotated[int, msgspec.Meta(gt=0)]": (1, 1),
    "Mapping[str, Sequence[int]]": ({"a": [1]}, {"a": [1]}),
    "Line": (Line(ID, Decimal("9.99")), {"product": str(ID), "price": "9.99", "sent_at": None}),
    "Order": (
        Order(ID, (Line(ID, Decimal(1), NOON),), frozenset({"b", "a"})),
        {
            "id": str(ID),
            "lines": [{"product": str(ID), "price": "1", "sent_at": "2026-12-24T12:00:00.000005Z"}],
            "tags": ["a", "b"],
        },
    ),
    "User": (
        User(id=ID, born=date(2000, 1, 2), orders=[Decimal("1.5")]),
        {"id": str(ID), "born": "2000-01-02", "orders": ["1.5"]},
    ),
    "list[User] | None": (
        [User(id=ID, born=date(2000, 1, 2))],
        [{"id": str(ID), "born": "2000-01-02", "orders": []}],
    ),
    "Any": ({"a": [1, None]}, {"a": [1, None]}),
}


def signature_of(annotation: str) -> CallSignature:
    """Of a function with one argument that is annotated so, in this module."""

    def work(ctx: gnomon.Attempt, it: Any) -> None: ...

    work.__annotations__["it"] = annotation
    return CallSignature("work", work)


@pytest.mark.parametrize("annotation", VALUES)
def test_a_value_is_written_by_its_annotation_and_comes_back(annotation: str) -> None:
    """As it was, with its type; what is stored is plain JSON."""
    value, stored = VALUES[annotation]
    signature = signature_of(annotation)

    args, kwargs = signature.encode([value], {})
    by_name = signature.encode([], {"it": value})
    back, _ = signature.decode(json.loads(json.dumps(args)), {})

    assert ([stored], {}) == (args, kwargs)
    assert ([], {"it": stored}) == by_name
    assert [value] == back
    assert type(value) is type(back[0])


BAD = {
    "UUID": ("x", "must be UUID: Invalid UUID (got 'x')"),
    "int": ("1", "must be int: Expected `int`, got `str` (got '1')"),
    "bool": (1, "must be bool"),
    "Line": (User(id=ID, born=date(2000, 1, 2)), "must be Line"),
    "Color": ("green", "must be Color"),
    "set[int]": ({"a"}, "must be set[int]"),
    "float": (float("nan"), "holds a number that is not finite"),
    "Thing": (Thing(), "holds a 'Thing', which has no form in JSON: use a dataclass"),
    "Any": (Thing(), "holds a 'Thing'"),
    "str": ("\ud800", "holds NUL or half of a surrogate pair"),
    "User": ({"id": "x"}, "must be User"),
    "Annotated[int, msgspec.Meta(gt=0)]": (0, "Expected `int` >= 1"),
}


@pytest.mark.parametrize("annotation", BAD)
def test_what_would_not_come_back_is_told_at_the_call(annotation: str) -> None:
    """By a TypeError that names the argument, where the mistake is made."""
    value, message = BAD[annotation]

    with pytest.raises(TypeError) as refused:
        signature_of(annotation).encode([value], {})

    assert str(refused.value).startswith("work(): the argument 'it' ")
    assert message in str(refused.value)


def test_all_kinds_of_parameters_are_typed() -> None:
    """By place, by name, and those that are many."""

    def work(
        ctx: Any, a: UUID, /, b: date, *more: Decimal, c: Color, **rest: timedelta
    ) -> None: ...

    signature = CallSignature("work", work)
    day = date(2026, 1, 2)

    args, kwargs = signature.encode([ID, day, Decimal(1)], {"c": Color.RED, "d": timedelta(1)})

    assert [str(ID), "2026-01-02", "1"] == args
    assert {"c": "red", "d": "P1D"} == kwargs
    back = signature.decode(args, kwargs)
    assert ([ID, day, Decimal(1)], {"c": Color.RED, "d": timedelta(1)}) == back


def test_arguments_without_annotations_are_plain_json() -> None:
    """Nothing is guessed, neither there nor back."""

    def work(ctx: Any, a, b=None) -> None: ...  # type: ignore[no-untyped-def]

    signature = CallSignature("work", work)

    args, kwargs = signature.encode([str(ID)], {"b": [1]})
    assert ([str(ID)], {"b": [1]}) == signature.decode(args, kwargs)
    with pytest.raises(TypeError, match="the argument 'b' holds a 'UUID'"):
        signature.encode([1], {"b": ID})


# -- signatures that do not fit any more ----------------------------------------------------------


def two(ctx: Any, a: int, b: UUID | None = None) -> None: ...


MISFITS: Mapping[str, tuple[list[object], dict[str, object], str]] = {
    "missing": ([], {}, "missing a required argument: 'a'; stored is (), wanted is (a: 'int'"),
    "too many": ([1, None, 3], {}, "too many positional arguments; stored is (1, None, 3)"),
    "unknown": ([1], {"c": "x"}, "got an unexpected keyword argument 'c'; stored is (1, c='x')"),
    "twice": ([1], {"a": 2}, "multiple values for argument 'a'"),
    "another type": (["x"], {}, "the argument 'a' was stored as 'x', and int is wanted: Expected"),
    "another form": ([1, "x"], {}, "the argument 'b' was stored as 'x', and UUID | None is wanted"),
}


@pytest.mark.parametrize("case", MISFITS)
def test_stored_arguments_that_do_not_fit_are_told(case: str) -> None:
    """Which argument, what was stored, what is wanted; and nothing is called."""
    args, kwargs, message = MISFITS[case]

    with pytest.raises(Misfit) as misfit:
        CallSignature("two", two).decode(args, kwargs)

    assert str(misfit.value).startswith("two(): ")
    assert message in str(misfit.value)


# -- annotations that cannot be used --------------------------------------------------------------


@pytest.mark.parametrize("annotation", ["", ": list"])
def test_a_function_may_change_what_it_is_given(annotation: str) -> None:
    """What is stored is shared: by the next attempt, and by actions with the same spec."""
    names: dict[str, Any] = {}
    exec(f"def grow(attempt, items{annotation}, *, more=None): ...", names)
    signature = CallSignature("grow", names["grow"])
    stored: list[object] = [[1, {"deep": [2]}]]
    for given in (signature.decode(stored, {"more": stored}), signature.decode(stored, {})):
        (items,), named = given
        assert [1, {"deep": [2]}] == items
        assert isinstance(items, list)
        items[1]["deep"].append(3)
        items.append(4)
        if named:
            assert isinstance(named["more"], list)
            named["more"].clear()
    assert [[1, {"deep": [2]}]] == stored


def test_an_annotation_that_two_types_share_is_refused_at_import() -> None:
    """Nobody could say which of them was stored."""
    with pytest.raises(gnomon.ConfigurationError, match="the annotation of its argument 'it' has"):
        signature_of("UUID | str")


def test_a_type_for_checkers_only_is_told_at_the_call_and_at_the_start() -> None:
    """It is not there at run time; a type that is defined further down is, by then."""
    registry = Registry()

    @registry.function()
    def half(ctx: gnomon.Attempt, part: Fraction) -> None: ...

    message = r"function half: the annotation of its argument 'part' cannot be found \(name 'Fract"
    with pytest.raises(TypeError, match=message):
        half(1)  # type: ignore[arg-type]
    with pytest.raises(gnomon.ConfigurationError, match="import it outside of `if TYPE_CHECKING:`"):
        registry.check()


def test_a_type_further_down_is_found_when_it_is_needed() -> None:
    """Modules may define them in any order; the attempt's own type is not even looked at."""
    names: dict[str, Any] = {}
    code = "from __future__ import annotations\ndef work(ctx: Nowhere, it: Later): ..."
    exec(code, names)
    signature = CallSignature("work", names["work"])
    names["Later"] = UUID

    assert ([str(ID)], {}) == signature.encode([ID], {})


class Greeter:
    """Objects and methods are functions, too."""

    def __call__(self, ctx: gnomon.Attempt, it: UUID) -> None: ...

    def greet(self, ctx: gnomon.Attempt, it: UUID) -> None: ...


@pytest.mark.parametrize(
    "function", [Greeter(), Greeter().greet, partial(Greeter.greet, Greeter())]
)
def test_whatever_can_be_called_is_typed(function: Callable[..., Any]) -> None:
    """Annotations are read where the code was written."""
    assert ([str(ID)], {}) == CallSignature("work", function).encode([ID], {})


_USED = (Optional, Literal, Annotated, Sequence)  # by the annotations above


def test_a_signature_is_described_for_a_form() -> None:
    """By the annotations, in JSON's own words; what has none is anything."""

    def call(  # type: ignore[no-untyped-def]
        ctx: gnomon.Attempt, who: str, /, count: int = 3, *, color: Color = Color.RED,
        at: datetime | None = None, model: Order | None = None, rest=(), odd: Any = ID.__class__,
    ) -> None:  # fmt: skip
        """Does something.

        At length."""

    described = Registry().register("call", call).describe()
    assert ("call", "Does something.", False) == (
        described.name, described.summary, described.takes_more
    )  # fmt: skip
    found = {one.name: one for one in described.parameters}
    assert ["who", "count", "color", "at", "model", "rest", "odd"] == list(found)
    assert (True, 0, False) == (found["who"].required, found["who"].place, found["who"].named)
    assert ({"type": "integer"}, 3, 1) == (
        found["count"].schema, found["count"].default, found["count"].place
    )  # fmt: skip
    assert ["blue", "red"] == sorted(found["color"].schema["$defs"]["Color"]["enum"])
    assert ("red", None) == (found["color"].default, found["color"].place)
    assert {"type": "string", "format": "date-time"} in found["at"].schema["anyOf"]
    assert {} == found["rest"].schema
    assert msgspec.UNSET is found["odd"].default
    assert not found["odd"].required
    text = msgspec.json.encode(described)
    assert text == msgspec.json.encode(msgspec.json.decode(text, type=FunctionRecord))


def test_functions_beyond_the_bound_are_left_out() -> None:
    """And counted, so that it can be told."""
    many = [FunctionRecord(name=f"f{number:04}") for number in range(FUNCTIONS_MAX + 3)]
    text, left_out = encode_functions(many)
    assert (FUNCTIONS_MAX, 3) == (len(read_functions(text)), left_out)
    large = [FunctionRecord(name=f"f{number}", summary="x" * 100_000) for number in range(5)]
    text, left_out = encode_functions(large)
    assert (2, 3) == (len(read_functions(text)), left_out)
    assert () == read_functions("{")
