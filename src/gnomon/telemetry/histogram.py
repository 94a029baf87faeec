"""Histograms for Prometheus that cost little to add to.

Those of its library take two locks and a walk over the buckets for each value; two of them are fed
by every attempt, and came to a sixth of all that a worker does for it.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector


class Histogram:
    """Counts of values up to each bound, for one set of labels."""

    __slots__ = ("_bounds", "_counts", "_lock", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)  # the last one: beyond all bounds
        self._sum = 0.0
        self._lock = threading.Lock()

    def observe(self, value: float) -> None:
        with self._lock:
            self._counts[bisect_left(self._bounds, value)] += 1
            self._sum += value

    def read(self) -> tuple[list[tuple[str, float]], float]:
        """How many values there were up to each bound, and their sum."""
        with self._lock:
            counts, total = list(self._counts), self._sum
        buckets, so_far = list[tuple[str, float]](), 0.0
        for bound, count in zip((*self._bounds, math.inf), counts, strict=True):
            so_far += count
            buckets.append((_shown(bound), so_far))
        return buckets, total


class HistogramFamily(Collector):
    """All histograms of one name."""

    def __init__(
        self, name: str, meaning: str, labels: Sequence[str], bounds: Sequence[float]
    ) -> None:
        self._name = name
        self._meaning = meaning
        self._labels = tuple(labels)
        self._bounds = tuple(bounds)
        self._found: dict[tuple[str, ...], Histogram] = {}
        if not labels:
            self.labels()  # shown from the beginning, as the others are

    def labels(self, **labels: str) -> Histogram:
        values = tuple(labels[name] for name in self._labels)
        return self._found.setdefault(values, Histogram(self._bounds))

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._meaning, labels=self._labels)
        for values, histogram in list(self._found.items()):
            buckets, total = histogram.read()
            family.add_metric(values, buckets, total)
        yield family


def _shown(bound: float) -> str:
    """As Prometheus writes it."""
    return "+Inf" if bound == math.inf else str(bound)
