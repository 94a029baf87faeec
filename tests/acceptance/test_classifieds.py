"""The example of stages: four of them look after ads for 180 days of virtual time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.classifieds.fakes import Pica, PriceModel, Tube
from examples.classifieds.stages import Expire, Photos, PredictPrice, VideoAlive
from gnomon.testing.stage_laws import check_stage

ROOT = Path(__file__).parents[2]
LIFE = """\
0.0 v1 user
0.0 v2 predict-price
0.0 v3 photos
0.0 v4 video-alive
0.0 v5 photos
10.0 v6 user
30.0 v7 user
30.0 v8 predict-price
40.0 v9 user
40.0 v10 photos
40.0 v11 photos
91.0 v12 video-alive
180.0 v13 expire
"""
AD: dict[str, Any] = {
    "status": "active", "published_at": "2026-01-01T00:00:00+00:00", "make": "Lada",
    "model": "Niva", "year": 2010, "price": 1, "photo_urls": ["u"], "video": "v",
}  # fmt: skip


def test_the_life_of_an_ad_is_as_the_stages_say() -> None:
    """Every change has its author and its day; in the end it is expired and nothing waits."""
    ended = subprocess.run(
        [sys.executable, "-m", "examples.classifieds"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert 0 == ended.returncode, ended.stderr
    lines = re.findall(r"^  day +(\S+)  (v\d+) +(\S+) ", ended.stdout, re.MULTILINE)
    assert LIFE.splitlines() == [" ".join(line) for line in lines]
    assert "in no queue, no timers" in ended.stdout
    assert "20 of 20 ads are expired" in ended.stdout


@pytest.mark.parametrize(
    "stage",
    [Expire(), PredictPrice(PriceModel()), Photos(Pica()), VideoAlive(Tube())],
    ids=lambda stage: str(stage.name),
)
def test_the_stages_of_the_example_obey_the_laws(stage: Any) -> None:
    """Pure, settled after one call, within what they watch and write."""
    check_stage(stage, examples=[AD, {**AD, "status": "sold"}])
