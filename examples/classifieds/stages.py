"""The four stages. Each is a pure function; what must happen outside happens after the save."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol, TypedDict

from examples.classifieds.ads import Ad, end_of
from gnomon.stages import EntityView, RetryLater, SavedVersion, Stage, Update, Wake


class Tube(Protocol):
    async def alive(self, video: str) -> bool: ...


class Pica(Protocol):
    async def order(self, url: str, *, key: str) -> None: ...


class PriceModel(Protocol):
    async def predict(self, cars: Sequence[tuple[str, str, int]]) -> list[int]: ...


class Expire(Stage[Ad, None]):
    """After 180 days an ad is over: a timer."""

    name, watch, writes = "expire", ("status", "published_at"), ("status", "closed_reason")

    def should_process(self, it: EntityView[Ad, None]) -> bool | Wake:
        return it.entity["status"] == "active" and Wake(end_of(it.entity))

    async def process(self, it: EntityView[Ad, None]) -> Update[None]:
        if it.entity["status"] != "active":
            return Update(wake=None)
        if it.now < end_of(it.entity):
            return Update(wake=end_of(it.entity))
        return Update({"status": "expired", "closed_reason": "180 days"}, wake=None)


class PredictPrice(Stage[Ad, None]):
    """What it is worth: many cars in one call of the model."""

    name, watch, writes = "predict-price", ("make", "model", "year"), ("predicted_price",)
    revision, batch, rate = 3, 256, "2000/s"

    def __init__(self, model: PriceModel) -> None:
        self.model = model

    async def process_many(self, its: Sequence[EntityView[Ad, None]]) -> Sequence[Update[None]]:
        cars = [(it.entity["make"], it.entity["model"], it.entity["year"]) for it in its]
        return [Update({"predicted_price": price}) for price in await self.model.predict(cars)]


class PhotoState(TypedDict):
    """What was ordered, and what has come."""

    wanted: list[str]
    got: dict[str, str]


EMPTY: PhotoState = {"wanted": [], "got": {}}


class Photos(Stage[Ad, PhotoState]):
    """Photos are downloaded by others: decide, save, order, and hear of it by the state."""

    name, watch, writes = "photos", ("photo_urls",), ("photos",)

    def __init__(self, pica: Pica) -> None:
        self.pica = pica

    def should_process(self, it: EntityView[Ad, PhotoState]) -> bool:
        state = it.state or EMPTY
        is_other = set(it.entity["photo_urls"]) != set(state["wanted"])
        return is_other or state["got"] != it.entity.get("photos", {})

    async def process(self, it: EntityView[Ad, PhotoState]) -> Update[PhotoState]:
        urls = it.entity["photo_urls"]
        got = {url: name for url, name in (it.state or EMPTY)["got"].items() if url in urls}
        gone = {url: None for url in it.entity.get("photos", {}) if url not in got}
        return Update({"photos": {**got, **gone}}, state={"wanted": urls, "got": got})

    async def after_save(self, saved: SavedVersion[Ad, PhotoState]) -> None:
        if saved.deleted or saved.state is None:
            return
        for url in saved.state["wanted"]:
            if url not in saved.state["got"]:
                await self.pica.order(url, key=f"{saved.id}:{url}")


class VideoAlive(Stage[Ad, None]):
    """Looks once a day whether the video is still there; the service allows 50 calls a second."""

    name, watch, writes = "video-alive", ("video", "status"), ("video_ok",)
    parallel, rate = 4, "50/s"

    def __init__(self, tube: Tube) -> None:
        self.tube = tube

    def should_process(self, it: EntityView[Ad, None]) -> bool:
        return bool(it.entity.get("video")) and it.entity["status"] == "active"

    async def process(self, it: EntityView[Ad, None]) -> Update[None]:
        if not self.should_process(it):
            return Update(wake=None)
        try:
            is_alive = await self.tube.alive(it.entity["video"])
        except TimeoutError:
            raise RetryLater("slow", after=timedelta(minutes=5)) from None
        return Update({"video_ok": is_alive}, wake=it.now + timedelta(days=1))
