"""Fields of a settings class that nobody turns: no file and no variable may name them.

They stand among the settings because checks relate them, and so that a test can give another value
to the constructor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field
from types import MappingProxyType
from typing import Any

# The metadata of such a field.
CONSTANT: Mapping[str, bool] = MappingProxyType({"is_constant": True})


def is_setting(item: Field[Any]) -> bool:
    """Whether a file or a variable may set this field."""
    return "is_constant" not in item.metadata
