"""How a function's arguments become JSON and come back, by its annotations.

What the annotations mean is found out once, when the function is declared. An argument without one
is plain JSON. Nothing is called with what does not fit: see `Misfit`.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from gnomon.model.attempt_boundary import AttemptBoundary
from gnomon.model.effects import json_problem
from gnomon.model.errors import ConfigurationError, short
from gnomon.model.function import (
    DEFAULT_CHARS_MAX,
    PARAMETERS_MAX,
    SCHEMA_CHARS_MAX,
    SUMMARY_CHARS_MAX,
    FunctionParameter,
    FunctionRecord,
)
from gnomon.model.outcome import cut

# JSON has them: what is of this very type is as it is stored.
_PLAIN = frozenset({str, int, float, bool})
_ANYTHING = (Any, object)
_MODULES = re.compile(r"\b(?:[a-z_]\w*\.)+(?=\w)")


class Misfit(Exception):  # noqa: N818 - a finding about stored arguments, not an error of ours
    """Stored arguments do not fit the function as it is now; the text is for people."""


class Unresolved(Exception):  # noqa: N818 - a finding about an annotation
    """An annotation names something that cannot be found."""


class Typed:
    """A value of an annotated type, as JSON and back."""

    def __init__(self, annotation: Any) -> None:
        """Errors: TypeError, if values of the type could not be told apart in JSON."""
        msgspec.json.Decoder(annotation, dec_hook=_read_foreign)
        self.annotation = annotation
        self._plain = annotation if annotation in _PLAIN else None

    def encode(self, value: object) -> object:
        """Errors: TypeError with what is wrong, as the rest of a sentence about the value."""
        if type(value) is self._plain:
            return value
        built = to_json(value)
        try:
            self.decode(built)  # what would not come back is told now
        except msgspec.ValidationError as exc:
            raise TypeError(f"must be {self}: {exc} (got {short(value)})") from None
        return built

    def decode(self, value: object) -> Any:
        """Errors: msgspec.ValidationError."""
        if type(value) is self._plain:
            return value
        return msgspec.convert(value, self.annotation, str_keys=True, dec_hook=_read_foreign)

    def __str__(self) -> str:
        if isinstance(self.annotation, type) and not typing.get_args(self.annotation):
            return self.annotation.__name__
        return _MODULES.sub("", str(self.annotation))


def to_json(value: object) -> object:
    """A value as JSON has it, by what it is. Errors: TypeError with the rest of a sentence."""
    try:
        built = msgspec.to_builtins(
            value, str_keys=True, enc_hook=build_foreign, order="deterministic"
        )
        return _copied(built)
    except (ValueError, RecursionError) as exc:
        raise TypeError(f"cannot be written as JSON: {exc}") from None


def _copied(value: object) -> object:
    """The same JSON in lists and dicts of its own, without tuples."""
    match value:
        case list() | tuple():
            return [_copied(part) for part in value]
        case dict():
            return {name: _copied(part) for name, part in value.items()}
    return value


class _Parameter(NamedTuple):
    name: str
    typed: Typed | None  # None: plain JSON

    def encode(self, value: object) -> object:
        built = value if self.typed is None else self.typed.encode(value)
        problem = json_problem(built)
        if problem is not None:
            raise TypeError(problem)
        return built


class _Parameters(NamedTuple):
    """What annotations mean."""

    by_place: tuple[_Parameter, ...]
    by_name: Mapping[str, _Parameter]
    others_by_place: _Parameter  # of *args
    others_by_name: _Parameter  # of **kwargs
    is_plain: bool  # nothing is to be decoded

    def at(self, place: int) -> _Parameter:
        return self.by_place[place] if place < len(self.by_place) else self.others_by_place

    def named(self, name: str) -> _Parameter:
        return self.by_name.get(name, self.others_by_name)


class CallSignature:
    """The signature of a declared function, without its attempt."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        """Errors: ConfigurationError for an annotation that has no form in JSON."""
        self.name = name
        self._function = function
        self._signature = inspect.signature(function)
        kinds = [one.kind for one in self._signature.parameters.values()]
        places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self._place_count = sum(kind in places for kind in kinds) - 1
        self._needed_count = sum(
            one.default is one.empty and one.kind in places
            for one in self._signature.parameters.values()
        ) - 1  # fmt: skip
        self._has_needed_names = any(
            one.kind is one.KEYWORD_ONLY and one.default is one.empty
            for one in self._signature.parameters.values()
        )
        self._parameters: _Parameters | None = None
        self.returns = self._returned()
        try:
            self.resolve()
        except ConfigurationError as exc:
            if not isinstance(exc.__cause__, Unresolved):
                raise  # else it may be defined further down in the module: see `resolve`

    def resolve(self) -> _Parameters:
        """What its annotations mean. Errors: ConfigurationError, if one cannot be found or has no
        form in JSON."""
        if self._parameters is None:
            self._parameters = self._read()
        return self._parameters

    # -- there ------------------------------------------------------------------------------------

    def encode(
        self, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> tuple[list[object], dict[str, object]]:
        """The arguments of a call as JSON. Errors: TypeError names the argument."""
        if not self._is_filled_by(args, kwargs):
            try:
                self._signature.bind(None, *args, **kwargs)
            except TypeError as exc:
                raise TypeError(f"{self.name}(): {exc}") from None
        try:
            parameters = self.resolve()
        except ConfigurationError as exc:
            raise TypeError(str(exc)) from None
        place = 0
        name = ""
        try:
            by_place: list[object] = []
            for place, value in enumerate(args):
                by_place.append(parameters.at(place).encode(value))
            place = -1
            by_name = {}
            for name, value in kwargs.items():
                by_name[name] = parameters.named(name).encode(value)
        except TypeError as exc:
            which = name if place < 0 else parameters.at(place).name
            raise TypeError(f"{self.name}(): the argument {which!r} {exc}") from None
        return by_place, by_name

    # -- and back ---------------------------------------------------------------------------------

    def decode(
        self, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> tuple[Sequence[object], Mapping[str, object]]:
        """Stored arguments as the function wants them, and its own: it may change a list that it is
        given, and other attempts share the spec. Errors: Misfit, and whatever the user's own types
        raise."""
        if not self._is_filled_by(args, kwargs):
            self._check_bound(args, kwargs)
        if args:
            args = [_copied(value) for value in args]
        if kwargs:
            kwargs = {name: _copied(value) for name, value in kwargs.items()}
        parameters = self._parameters or self.resolve()
        if parameters.is_plain:
            return args, kwargs
        by_place = [self._decoded(parameters.at(place), value) for place, value in enumerate(args)]
        by_name = {
            name: self._decoded(parameters.named(name), value) for name, value in kwargs.items()
        }
        return by_place, by_name

    def _decoded(self, parameter: _Parameter, value: object) -> object:
        if parameter.typed is None:
            return value
        try:
            return parameter.typed.decode(value)
        except msgspec.ValidationError as exc:
            raise Misfit(
                f"{self.name}(): the argument {parameter.name!r} was stored as {short(value)}, and"
                f" {parameter.typed} is wanted: {exc}"
            ) from None

    def _is_filled_by(self, args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
        """The commonest case, at a glance: arguments by place, no more and no fewer than wanted."""
        return (
            not kwargs
            and self._needed_count <= len(args) <= self._place_count
            and not self._has_needed_names
        )

    def _check_bound(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        try:
            self._signature.bind(None, *args, **kwargs)
        except TypeError as exc:
            stored = ", ".join(
                [*map(short, args), *(f"{name}={short(value)}" for name, value in kwargs.items())]
            )
            raise Misfit(
                f"{self.name}(): what was stored does not fit its signature any more: {exc};"
                f" stored is ({stored}), wanted is {self._shown()}"
            ) from None

    def _shown(self) -> str:
        parameters = list(self._signature.parameters.values())[1:]
        shown = self._signature.replace(
            parameters=parameters, return_annotation=inspect.Signature.empty
        )
        return str(shown)

    # -- for people -------------------------------------------------------------------------------

    def describe(self) -> FunctionRecord:
        """What it is called with, for a form. Errors: ConfigurationError, as `resolve`."""
        known = self.resolve().by_name
        kinds = inspect.Parameter
        parameters = list(self._signature.parameters.values())[1:]
        more = (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
        described = [
            FunctionParameter(
                name=one.name,
                required=one.default is one.empty,
                place=None if one.kind is kinds.KEYWORD_ONLY else place,
                named=one.kind is not kinds.POSITIONAL_ONLY,
                schema=_schema_of(known[one.name].typed),
                default=_default_of(one),
            )
            for place, one in enumerate(parameters)
            if one.kind not in more
        ]
        summary = (inspect.getdoc(self._function) or "").partition("\n")[0]
        return FunctionRecord(
            name=self.name,
            summary=cut(summary, SUMMARY_CHARS_MAX),
            parameters=tuple(described[:PARAMETERS_MAX]),
            takes_more=any(one.kind in more for one in parameters)
            or len(described) > PARAMETERS_MAX,
        )

    # -- annotations ------------------------------------------------------------------------------

    def _read(self) -> _Parameters:
        by_place, by_name = [], {}
        others = {
            inspect.Parameter.VAR_POSITIONAL: _Parameter("*", None),
            inspect.Parameter.VAR_KEYWORD: _Parameter("**", None),
        }
        for parameter in list(self._signature.parameters.values())[1:]:  # the first is the attempt
            read = _Parameter(parameter.name, self._typed(parameter))
            match parameter.kind:
                case inspect.Parameter.VAR_POSITIONAL:
                    others[parameter.kind] = read._replace(name=f"*{read.name}")
                case inspect.Parameter.VAR_KEYWORD:
                    others[parameter.kind] = read
                case inspect.Parameter.KEYWORD_ONLY:
                    by_name[read.name] = read
                case _:
                    by_place.append(read)
                    by_name[read.name] = read
        by_kind = (others[inspect.Parameter.VAR_POSITIONAL], others[inspect.Parameter.VAR_KEYWORD])
        everything = (*by_place, *by_name.values(), *by_kind)
        is_plain = all(one.typed is None for one in everything)
        return _Parameters(tuple(by_place), by_name, *by_kind, is_plain)

    def _typed(self, parameter: inspect.Parameter) -> Typed | None:
        if parameter.annotation is parameter.empty:
            return None
        where = f"the annotation of its argument {parameter.name!r}"
        try:
            annotation = _resolved(self._function, parameter.annotation)
            return None if annotation in _ANYTHING else Typed(annotation)
        except Unresolved as exc:
            raise ConfigurationError(
                f"function {self.name}",
                f"{where} cannot be found ({exc}): import it outside of `if TYPE_CHECKING:`, or"
                " leave the annotation out",
            ) from exc
        except TypeError as exc:
            raise ConfigurationError(
                f"function {self.name}", f"{where} has no form in JSON: {exc}"
            ) from exc

    def _returned(self) -> Typed | None:
        """Of what it returns; None if that is plain, or nothing that could be read back."""
        annotation = self._signature.return_annotation
        if annotation is inspect.Signature.empty:
            return None
        with AttemptBoundary((Unresolved, TypeError)):
            annotation = _resolved(self._function, annotation)
            return None if annotation in _ANYTHING else Typed(annotation)
        return None


def _schema_of(typed: Typed | None) -> dict[str, Any]:
    """Empty: anything; for what is not known, has no schema, or one too large for a form."""
    if typed is None:
        return {}
    try:
        schema = msgspec.json.schema(typed.annotation, schema_hook=_any_schema)
        if datetime in (typed.annotation, *typing.get_args(typed.annotation)):
            _say_time(schema)
        return schema if len(msgspec.json.encode(schema)) <= SCHEMA_CHARS_MAX else {}
    except (TypeError, ValueError):
        return {}


def _say_time(schema: dict[str, Any]) -> None:
    """msgspec calls a time a string, unless its zone is constrained."""
    for part in (schema, *schema.get("anyOf", ())):
        if part == {"type": "string"}:
            part["format"] = "date-time"


def _any_schema(_kind: type) -> dict[str, Any]:
    return {}


def _default_of(parameter: inspect.Parameter) -> object:
    if parameter.default is parameter.empty:
        return msgspec.UNSET
    try:
        value = to_json(parameter.default)
        return value if len(msgspec.json.encode(value)) <= DEFAULT_CHARS_MAX else msgspec.UNSET
    except (TypeError, ValueError):
        return msgspec.UNSET


def _resolved(function: Callable[..., Any], annotation: object) -> Any:
    """An annotation as a type, texts in it resolved where the function was written."""

    def holder() -> None: ...

    holder.__annotations__ = {"it": annotation}
    written = inspect.unwrap(getattr(function, "func", function))
    if not hasattr(written, "__globals__"):
        written = getattr(written, "__func__", None) or type(written).__call__
    try:
        hints = typing.get_type_hints(
            holder, globalns=getattr(written, "__globals__", {}), include_extras=True
        )
    except (NameError, AttributeError, SyntaxError) as exc:
        raise Unresolved(str(exc)) from None
    return hints["it"]


# -- types that msgspec does not know -------------------------------------------------------------


def build_foreign(value: object) -> object:
    """What stands in JSON for a value of a type that msgspec does not know. Errors: TypeError."""
    dump = getattr(value, "model_dump", None)  # a pydantic model
    if dump is not None:
        return dump(mode="json")
    kind = type(value).__name__
    raise TypeError(
        f"holds a {short(kind)}, which has no form in JSON: use a dataclass, a msgspec.Struct or a"
        " pydantic model"
    )


def _read_foreign(kind: Any, value: object) -> object:
    read = getattr(kind, "model_validate_json", None)  # as JSON: strict models read it, too
    if read is not None:
        return read(msgspec.json.encode(value))
    raise ValueError(f"a {kind.__name__} cannot be read back from JSON")
