from dataclasses import replace
from typing import Any

import pytest

from medley import agreement, config
from medley.cluster import Cluster
from medley.facts.gpu import NvidiaDriver
from medley.kind import Kind
from medley.recognised import kind_of
from tests.recorded import recorded

OURS = {"medley": "aaaa"}


@pytest.mark.parametrize(
    ("greeting", "ahead_s", "said"),
    [
        pytest.param(OURS, 0.4, [], id="alike"),
        pytest.param(OURS, -9.9, [], id="almost"),
        pytest.param(OURS, 61, ["the clock of b is off"], id="ahead"),
        pytest.param(OURS, -3600, ["the clock of b is off"], id="behind"),
        pytest.param({"medley": "bbbb"}, 0, ["b runs another medley than this host"], id="another"),
    ],
)
def test_differences(greeting: dict[str, str], ahead_s: float, said: list[str]) -> None:
    assert [each.what for each in agreement.differences("b", greeting, "aaaa", ahead_s)] == said


@pytest.mark.parametrize(("free_mib", "count"), [(511, 1), (512, 0)])
def test_shortages(free_mib: int, count: int) -> None:
    assert len(list(agreement.shortages("b", {"free_bytes": free_mib << 20, "state": "/s"}))) == count


PART: dict[str, Any] = {"role": "worker", "head": "10.0.0.1:24000", "address": "10.0.0.2"}
RAY: dict[str, Any] = {"name": "medley-ray", "running": True}


LOOKS: list[Any] = [
        pytest.param({"membership": PART, "units": [RAY]}, True, id="as it should be"),
        pytest.param({"membership": None, "units": []}, False, id="nothing runs"),
        pytest.param({"membership": PART, "units": []}, False, id="by hand, and nobody keeps it"),
        pytest.param({"membership": PART, "units": [dict(RAY, running=False)]}, False, id="it ended"),
        pytest.param({"membership": dict(PART, role="head"), "units": [RAY]}, False, id="role"),
        pytest.param({"membership": dict(PART, head="10.1.0.1:1"), "units": [RAY]}, False, id="head"),
        pytest.param({"membership": dict(PART, address="10.1.0.2"), "units": [RAY]}, False, id="wire"),
]  # fmt: skip


@pytest.mark.parametrize(("look", "stands"), LOOKS)
def test_what_stands(look: dict[str, Any], *, stands: bool) -> None:
    assert agreement.stands(look, "worker", "10.0.0.1:24000", "10.0.0.2") is stands


ADDRESSES = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}


@pytest.mark.parametrize(
    ("sees", "misses", "blamed"),
    [
        pytest.param("a", "b", "b", id="the head does not reach a worker"),
        pytest.param("b", "a", "b", id="a worker does not reach the head"),
        pytest.param("b", "c", "c", id="two workers"),
    ],
)
def test_who_is_left_out(sees: str, misses: str, blamed: str) -> None:
    said = {sees: {"closed": [[misses, ADDRESSES[misses], 24999, "timed out"]]}}
    ((name, problem),) = agreement.unreached(said, "a", ADDRESSES)
    assert name == blamed
    assert problem.what == f"{sees} does not reach {misses}"
    assert f"on {misses}: sudo ufw allow from {ADDRESSES[sees]}" in problem.fix


@pytest.mark.parametrize(("boots", "count"), [(True, 0), (None, 0), (False, 1)])
def test_advice(boots: Any, count: int) -> None:
    assert len(list(agreement.advice("b", {"boots": boots, "user": "ann"}))) == count


@pytest.mark.parametrize(
    ("runs", "needs", "count"),
    [
        pytest.param("12.8", "13.0", 1, id="an older major"),
        pytest.param("13.0", "13.2", 0, id="an older minor"),
        pytest.param("13.0", "12.6", 0, id="a newer one"),
        pytest.param(None, "13.0", 1, id="it does not say, and its version is too old"),
        pytest.param(None, "12.6", 0, id="it does not say, and its version will do"),
        pytest.param("12.8", None, 0, id="no toolkit"),
    ],
)
def test_the_driver(runs: str | None, needs: str | None, count: int) -> None:
    found = replace(recorded("spark"), driver=NvidiaDriver("570.1", cuda=runs))
    known = config.hosts()["spark"]
    toolkit = known.toolkit and known.toolkit.model_copy(update={"cuda": needs})
    kind = Kind("spark", known.model_copy(update={"toolkit": toolkit if needs else None}), "")
    said = list(agreement.driver("b", found, kind))
    assert len(said) == count
    assert all(
        "driver 570.1 runs CUDA 12.8 at most" in each.cause or "it is 570.1" in each.cause for each in said
    )


@pytest.mark.parametrize(
    ("host", "runs"), [("orin-r36", "12.6"), ("orin-r39", "13.2"), ("thor-r38", "13.0"), ("spark", "13.0")]
)
def test_what_the_driver_runs_is_known_of_a_jetson_too(host: str, runs: str) -> None:
    found = recorded(host)
    silent = replace(found, driver=replace(found.driver, cuda=None))
    assert agreement.cuda(found) == runs
    assert agreement.cuda(silent) == (None if host == "spark" else runs)


def test_a_jetson_taken_for_a_newer_one_has_too_old_a_driver() -> None:
    found = recorded("orin-r36")
    silent = replace(found, driver=replace(found.driver, cuda=None, version=None))
    (problem,) = agreement.driver("b", silent, Kind("orin-r39", config.hosts()["orin-r39"], ""))
    assert "runs CUDA 12.6 at most" in problem.cause


@pytest.mark.parametrize(
    ("orin", "left_out"),
    [
        pytest.param({}, ["orin"], id="nothing is said: all that it has is its image"),
        pytest.param({"image": "default"}, ["orin"], id="the image, with another vLLM"),
        pytest.param({"env": "/home/you/venv"}, [], id="of one's own virtualenv nothing is known"),
        pytest.param({"image": "maker/vllm:1"}, [], id="nor of another image"),
    ],
)
def test_an_orin_on_jetpack_6_is_left_out_before_anything_is_fetched(
    orin: dict[str, str], left_out: list[str]
) -> None:
    cluster = Cluster.model_validate({"hosts": {"spark": {}, "orin": orin}})
    found = {"spark": recorded("spark"), "orin": recorded("orin-r36")}
    kinds = {name: kind_of(each) for name, each in found.items()}
    unfit = dict(agreement.unfit(found, kinds, cluster, "spark"))
    assert list(unfit) == left_out
    for problem in unfit.values():
        assert "vLLM 0.12.0 and 0.32.0, Python 3.10 and 3.12" in problem.cause
        assert "JetPack 7.2 on orin, or the same image on all hosts" in problem.fix
        assert "--without orin" in problem.fix


def test_two_orins_out_of_their_image_agree() -> None:
    cluster = Cluster.model_validate({"hosts": {"a": {}, "b": {}}, "image": "default"})
    found = dict.fromkeys(("a", "b"), recorded("orin-r36"))
    kinds = {name: kind_of(each) for name, each in found.items()}
    assert list(agreement.unfit(found, kinds, cluster, "a")) == []
