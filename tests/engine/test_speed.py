"""A host that is in no cluster measures itself, and plans with what it found."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine


def said(state: Path, *words: str) -> dict[str, Any]:
    run = subprocess.run(
        [sys.executable, "-m", "medley", *words, "--json"],
        env={**os.environ, "MEDLEY_STATE": str(state)},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return dict(json.loads(run.stdout))


def test_a_lone_host_is_measured_and_planned_with(tmp_path: Path) -> None:
    (found,) = said(tmp_path, "collective-test", "--only", "speed")["speeds"]
    # Between a tenth and a thousand times of one core with dual-channel memory.
    assert 0.5 < found["gb_s"] < 5000
    assert 0.002 < found["few_tflops"] < 100
    assert found["few_tflops"] < 2 * found["tflops"], "more tokens at once are no slower, token for token"
    assert found["dtype"] == "bfloat16"
    planned = said(tmp_path, "plan", "demo")
    (device,) = planned["layout"]["stages"][0]["devices"]
    assert (device["measured"], device["bandwidth_gb_s"]) == (True, found["gb_s"])
    assert any(f"measured {found['gb_s']:.3g} GB/s" in why for why in planned["why"])
