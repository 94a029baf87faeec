"""180 days in the life of some ads, on the bench: the real engine, and a clock that we move."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from examples.classifieds.ads import Ad, some_ads
from examples.classifieds.fakes import Pica, PriceModel, Tube
from examples.classifieds.stages import Expire, Photos, PredictPrice, VideoAlive
from gnomon.model.ids import EntityKey
from gnomon.testing.stage_bench import StageBench

AD_COUNT = 20
SHOWN = "ad-1"
HERO: Ad = {
    "status": "active", "published_at": "2026-01-01T00:00:00+00:00", "make": "Toyota",
    "model": "Corolla", "year": 2019, "price": 1_200_000,
    "photo_urls": ["https://photos.example/front.jpg", "https://photos.example/back.jpg"],
    "video": "https://tube.example/hero",
}  # fmt: skip


class World:
    """The bench, and the services around it."""

    def __init__(self) -> None:
        self.tube, self.pica = Tube(), Pica()
        self.bench = StageBench(
            "ad",
            Expire(),
            PredictPrice(PriceModel()),
            Photos(self.pica),
            VideoAlive(self.tube),
            now="2026-01-01",
            entity=Ad,
        )
        self.began = self.bench.now

    async def until_day(self, day: int) -> None:
        """Let time pass; what was ordered is downloaded within an hour."""
        await self._downloads()
        end = self.began + timedelta(days=day)
        await self.bench.advance(seconds=(end - self.bench.now).total_seconds())

    async def _downloads(self) -> None:
        await self.bench.advance(hours=1)
        for ad_id, url in self.pica.waiting():
            await self.pica.deliver(ad_id, url, self.bench.stages.state("photos", ad_id))
        await self.bench.run_due()

    async def live(self) -> None:
        """What happens to the ad that is shown; the others just grow old."""
        for ad_id, ad in some_ads(AD_COUNT, self.bench.now):
            await self.bench.put(ad_id, HERO if ad_id == SHOWN else ad)
        await self.bench.run_due()
        await self.until_day(10)
        await self.bench.patch(SHOWN, {"price": 1_150_000})
        await self.until_day(30)
        await self.bench.patch(SHOWN, {"year": 2020, "price": 1_250_000})
        await self.until_day(40)
        photos = ["https://photos.example/front.jpg", "https://photos.example/inside.jpg"]
        await self.bench.patch(SHOWN, {"photo_urls": photos})
        await self.until_day(90)
        self.tube.slow_calls = 3
        self.tube.gone.add(HERO["video"])
        await self.until_day(181)


def told(world: World, ad_id: str) -> Iterator[str]:
    """An ad's life, a line for every version."""
    before: dict[str, Any] = {}
    for row in world.bench.published:
        if EntityKey.parse(row.entity_key).id != ad_id or row.doc is None:
            continue
        after = json.loads(row.doc)
        changed = {key: after.get(key) for key in after.keys() | before.keys()
                   if after.get(key) != before.get(key)}  # fmt: skip
        if changed:
            shown = ", ".join(f"{key} = {_short(changed[key])}" for key in sorted(changed))
            who = row.author.removeprefix("stage:")
            yield f"  day {_day(world, row.at):>5}  v{row.version:<3} {who:<14} {shown}"
        before = after


def _day(world: World, at: datetime) -> str:
    return f"{(at - world.began) / timedelta(days=1):.1f}"


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 44 else text[:43] + "…"


async def main() -> None:
    world = World()
    async with world.bench as bench:
        await world.live()
        print(f"the life of {SHOWN}:")
        print("\n".join(told(world, SHOWN)))
        print(await bench.explain(SHOWN))
        ads = [bench[f"ad-{number}"] for number in range(1, AD_COUNT + 1)]
        expired = sum(ad["status"] == "expired" for ad in ads)
        print(f"{expired} of {AD_COUNT} ads are expired, {len(world.pica.done)} photos downloaded")


if __name__ == "__main__":
    asyncio.run(main())
