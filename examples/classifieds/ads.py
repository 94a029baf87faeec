"""What an ad is, and a generator of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NotRequired, TypedDict

LIFETIME = timedelta(days=180)
MODELS = {"Lada": ("Niva", "Vesta"), "Toyota": ("Corolla", "Camry"), "Škoda": ("Octavia", "Fabia")}


class Ad(TypedDict):
    """A car for sale. The lower half belongs to the stages."""

    status: str  # active, expired, sold
    published_at: str
    make: str
    model: str
    year: int
    price: int
    photo_urls: list[str]
    video: NotRequired[str]

    closed_reason: NotRequired[str]  # expire
    predicted_price: NotRequired[int]  # predict-price
    photos: NotRequired[dict[str, str]]  # photos: the url, and the name it is kept under
    video_ok: NotRequired[bool]  # video-alive


def end_of(ad: Ad) -> datetime:
    """When it expires."""
    return datetime.fromisoformat(ad["published_at"]) + LIFETIME


def some_ads(count: int, now: datetime, *, seed: int = 1) -> Iterator[tuple[str, Ad]]:
    """Ads as people write them; the same for the same seed."""
    dice = random.Random(seed)
    for number in range(1, count + 1):
        make = dice.choice(sorted(MODELS))
        ad: Ad = {
            "status": "active",
            "published_at": now.isoformat(),
            "make": make,
            "model": dice.choice(MODELS[make]),
            "year": dice.randint(2005, 2025),
            "price": dice.randrange(200_000, 2_000_000, 10_000),
            "photo_urls": [
                f"https://photos.example/{number}-{n}.jpg" for n in range(dice.randint(0, 3))
            ],
        }
        if dice.random() < 0.5:
            ad["video"] = f"https://tube.example/{number}"
        yield f"ad-{number}", ad
