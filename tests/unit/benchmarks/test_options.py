"""The options of `python -m benchmarks`, and the plan that follows from them."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import parsed, planned, scale_of, scenario_list
from benchmarks.scale import ENGINES, FULL, QUICK
from benchmarks.scenarios import SCENARIOS


def test_all_is_measured_where_it_can_be() -> None:
    steps = planned(FULL, quick=False)
    wanted = [(n, e) for e in ENGINES for n, scenario in SCENARIOS.items() if e in scenario.takes]
    assert wanted == [(step.scenario, step.engine) for step in steps]


def test_more_rounds_take_longer() -> None:
    one, five = (
        sum(step.expected_s for step in planned(scale_of(parsed([f"--rounds={n}"])), quick=False))
        for n in (1, 5)
    )
    assert one < five


def test_options_change_the_scale() -> None:
    assert QUICK == scale_of(parsed(["--quick"]))
    scale = scale_of(parsed(["--full-growth", "--minutes", "2", "--repeats", "0"]))
    assert 10_000_000 == scale.growth[-1] == scale.loaded_pending[-1]
    assert (300.0, 120.0, 0) == (scale.snapshot_for_s, scale.sustained_for_s, scale.repeats)


@pytest.mark.parametrize("wrong", ["--only=drian", "--peers=celery", "--rounds=0", "--engine=x"])
def test_a_slip_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With what there is."""
    with pytest.raises(SystemExit):
        parsed([wrong])
    assert wrong.partition("=")[2] in capsys.readouterr().err


def test_help_names_every_scenario_and_its_time() -> None:
    text = scenario_list()
    for name in SCENARIOS:
        assert f"  {name}: " in text
