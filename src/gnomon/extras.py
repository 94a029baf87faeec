"""What may be installed beside the base: the extras of the distribution, and how one is missed.

The base has SQLite, functions, HTTP and the command line. Whoever needs more is told so in one
sentence when it starts, before anything is connected or half done.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType

from gnomon.model.errors import MissingExtra


@dataclass(frozen=True, slots=True)
class Extra:
    """Modules of others, and the sentence that says what they are for."""

    need: str
    modules: tuple[str, ...]


EXTRAS: Mapping[str, Extra] = MappingProxyType(
    {
        "postgres": Extra("PostgreSQL needs its drivers", ("asyncpg", "psycopg")),
        "server": Extra(
            "the REST API needs its server", ("starlette", "uvicorn", "prometheus_client")
        ),
        "metrics": Extra("metrics need their library", ("prometheus_client",)),
        "grpc": Extra("gRPC needs its library", ("google.protobuf", "grpc", "grpc_health")),
        "rabbitmq": Extra("RabbitMQ needs its client", ("aio_pika",)),
        "kafka": Extra("Kafka needs its client", ("aiokafka",)),
        "otel": Extra("tracing needs OpenTelemetry", ("opentelemetry",)),
        "django": Extra("the backend of django.tasks needs Django", ("django",)),
        "ed25519": Extra("ed25519 keys need their library", ("cryptography",)),
    }
)


def is_installed(extra: str) -> bool:
    """Whether all of it can be imported; nothing of it is loaded."""
    return all(_is_there(module) for module in EXTRAS[extra].modules)


def require(extra: str) -> None:
    """Errors: MissingExtra, with the command that installs it."""
    if not is_installed(extra):
        raise MissingExtra(extra, EXTRAS[extra].need)


def _is_there(module: str) -> bool:
    if module in sys.modules:
        return sys.modules[module] is not None
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False
