"""The world around: a video service, a photo downloader, a model of prices. All of it pretended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from examples.classifieds.stages import PhotoState


class Tube:
    """Says whether a video is still there."""

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self.slow_calls = 0  # of the next calls, so many time out

    async def alive(self, video: str) -> bool:
        if self.slow_calls:
            self.slow_calls -= 1
            raise TimeoutError
        return video not in self.gone


class StateOfPhotos(Protocol):
    """What the downloader needs of the scheduler: the state, and compare-and-set on it."""

    async def read(self) -> tuple[PhotoState | None, int]: ...

    async def swap(self, new: PhotoState, *, version: int) -> bool: ...


class Pica:
    """Downloads photos, some time later. An order may come twice: the key tells."""

    def __init__(self) -> None:
        self.ordered: dict[str, str] = {}  # key, url
        self.done: set[str] = set()

    async def order(self, url: str, *, key: str) -> None:
        self.ordered[key] = url

    def waiting(self) -> list[tuple[str, str]]:
        """Ads and urls whose download is ready to be told."""
        open_keys = [key for key in self.ordered if key not in self.done]
        return [(key.partition(":")[0], self.ordered[key]) for key in open_keys]

    async def deliver(self, ad_id: str, url: str, state: StateOfPhotos) -> None:
        """Tell the stage that a photo is there: compare-and-set, again if another was faster."""
        stored = False
        while not stored:
            current, version = await state.read()
            assert current is not None, "an order without a decision"
            name = f"{ad_id}-{url.rpartition('/')[2]}"
            got = {**current["got"], url: name}
            stored = await state.swap({"wanted": current["wanted"], "got": got}, version=version)
        self.done.add(f"{ad_id}:{url}")


class PriceModel:
    """Predicts what a car is worth."""

    async def predict(self, cars: Sequence[tuple[str, str, int]]) -> list[int]:
        return [300_000 + 10_000 * len(make + model) + 50_000 * (year - 2000)
                for make, model, year in cars]  # fmt: skip
