"""The metrics of several processes as if they were of one: counts are added up, ages are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from gnomon.telemetry.metrics import METRICS, PREFIX

_HIGHEST = frozenset(PREFIX + metric.name for metric in METRICS if metric.joined == "max")
_CREATED = "_created"

Key = tuple[str, tuple[tuple[str, str], ...]]


class _Joined:
    """What `generate_latest` renders."""

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Family]:
        yield from self._families


def join_metrics(pages: Sequence[bytes], *, only_counts: bool = False) -> bytes:
    """One page out of several. `only_counts`: without gauges, which end with their process."""
    families: dict[str, Family] = {}
    values: dict[str, dict[Key, float]] = {}
    for page in pages:
        for family in text_string_to_metric_families(page.decode()):
            if only_counts and family.type == "gauge":
                continue
            families.setdefault(family.name, family)
            _add(values.setdefault(family.name, {}), family)
    return generate_latest(
        _Joined([_family(families[name], values[name]) for name in sorted(families)])
    )


def _add(values: dict[Key, float], family: Family) -> None:
    for sample in family.samples:
        if sample.name.endswith(_CREATED):
            continue
        key = sample.name, tuple(sample.labels.items())
        if family.name in _HIGHEST:
            values[key] = max(values.get(key, sample.value), sample.value)
        else:
            values[key] = values.get(key, 0.0) + sample.value


def _family(described: Family, values: dict[Key, float]) -> Family:
    family = Family(described.name, described.documentation, described.type)
    for (name, labels), value in values.items():
        family.add_sample(name, dict(labels), value)
    return family
