"""`--import MODULE:APP`: the user's own App, and what it says about the database."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from gnomon.app import BY_APP, App
from gnomon.boundary import performed
from gnomon.cli.output import say
from gnomon.config import DEFAULT, DatabaseConfig, Settings, fill_in
from gnomon.model.errors import ConfigurationError, GnomonError

APP_DEFAULT = "app"


def import_app(place: str) -> App:
    """The App that `module:name` names. Errors: ConfigurationError, which says what to write."""
    module_name, marked, name = place.partition(":")
    if not module_name or (marked and not name):
        raise _refused(place, "write MODULE:APP, shop.actions:app")
    module = _module(place, module_name)
    app = getattr(module, name or APP_DEFAULT, None)
    if isinstance(app, App):
        return app
    trouble = f"{module_name} has no {name or APP_DEFAULT!r}"
    if app is not None:
        trouble = f"{name or APP_DEFAULT} is a {type(app).__name__}, not a gnomon.App"
    raise _refused(place, f"{trouble}; {_found(module)}")


def with_imported(settings: Settings, imported: str | None, app: App | None) -> Settings:
    """The settings of a command, filled in with those of the App. A difference is told, unless the
    place is not given: somebody else has told it."""
    if app is None:
        return settings
    joined = fill_in(settings, app.settings)
    own, used = app.settings.database, joined.database
    is_other = (own.url, own.schema) != (used.url, used.schema)
    if imported is not None and is_other and _is_explicit(app.settings):
        source = joined.source_of("database.url" if own.url != used.url else "database.schema")
        say(
            f"note: the App of {imported} names {own.url_shown}, schema {own.schema}; "
            f"that of the {source} counts"
        )
    return joined


def _is_explicit(settings: Settings) -> bool:
    """Whether the App itself names its database: by an argument, or by settings made by hand."""
    sources = {settings.source_of("database.url"), settings.source_of("database.schema")}
    own, default = settings.database, DatabaseConfig()
    is_hand_made = (own.url, own.schema) != (default.url, default.schema)
    return BY_APP in sources or (sources == {DEFAULT} and is_hand_made)


def _module(place: str, name: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if name.endswith(".py") or "/" in name:
        dotted = name.removesuffix(".py").strip("./").replace("/", ".")
        raise _refused(place, f"that is a file: write its module, --import {dotted}:app")
    module, error = performed(lambda: importlib.import_module(name))
    if module is not None:
        return module
    assert error is not None
    if isinstance(error, GnomonError) or not isinstance(error, Exception):
        raise error
    if isinstance(error, ModuleNotFoundError) and error.name in _parents(name):
        raise _refused(place, _missing(name, error.name or name)) from None
    raise _refused(place, f"loading it failed: {type(error).__name__}: {error}{_line(error)}")


def _parents(name: str) -> set[str]:
    """`a.b.c` itself, `a.b` and `a`."""
    parts = name.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts) + 1)}


def _missing(name: str, missing: str) -> str:
    parent, _, last = name.rpartition(".")
    if parent:
        module, _ = performed(lambda: importlib.import_module(parent))
        if isinstance(getattr(module, last, None), App):
            return f"there is no module {name}: write --import {parent}:{last}"
    return f"there is no module {missing} in {Path.cwd()} or on Python's path"


def _line(error: BaseException) -> str:
    """Where it was raised, in the user's own code."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    return f" ({frames[-1].filename}:{frames[-1].lineno})"


def _found(module: ModuleType) -> str:
    """Which Apps the module has instead."""
    names = sorted(name for name, value in vars(module).items() if isinstance(value, App))
    if not names:
        return "write `app = gnomon.App()` there, and declare your functions with `@app.action`"
    return f"write --import {module.__name__}:{names[0]}"


def _refused(place: str, what: str) -> ConfigurationError:
    return ConfigurationError("--import", f"cannot load {place!r}: {what}")
