import shlex
from typing import Any

import pytest

from medley import config
from medley.cluster import checks
from medley.cluster.checks import require_same_versions
from medley.cluster.cluster_file import Cluster, ClusterHost
from medley.errors import Problem
from medley.host.facts.gpu import NvidiaDriver
from medley.host.kind import Kind, find_kind
from tests.host.recordings import recorded
from tests.problems import assert_problem, raises_problem


@pytest.mark.parametrize(
    ("ahead_s", "off"), [pytest.param(0.4, False, id="alike"), (-9.9, False), (61, True), (-3600, True)]
)
def test_a_clock(ahead_s: float, *, off: bool) -> None:
    problem = checks.clock_problem("b", ahead_s)
    assert (problem is not None) is off
    if problem:
        assert_problem(problem, " b ", cause=f"{abs(ahead_s):.0f} s")


def test_a_kind_that_a_host_cannot_have_names_the_host_and_the_key() -> None:
    found = recorded("cpu-rack")
    assert checks.find_member_kind("h1", found, ClusterHost(kind="cpu")).name == "cpu"
    with raises_problem("h1", cause="nvidia-smi", fix="at [hosts.h1] in cluster.toml, remove kind = 'spark'"):
        checks.find_member_kind("h1", found, ClusterHost(kind="spark"))
    with raises_problem("h1", cause="'sparc'", fix="write 'spark' instead"):
        checks.find_member_kind("h1", found, ClusterHost(kind="sparc"))


def test_another_medley() -> None:
    assert checks.other_version_problem("b", "aaaa", "aaaa") is None
    problem = checks.other_version_problem("b", "bbbb", "aaaa")
    assert problem
    assert_problem(problem, "b ", cause=("bbbb", "aaaa"))


def test_a_host_without_an_engine_is_left_out_before_anything_is_built() -> None:
    """No environment and no image has SGLang for an Orin; its user may have an image."""
    orin, thor = find_kind(recorded("orin-r39")), find_kind(recorded("thor-r38"))
    members = {"orin": (orin, ClusterHost()), "thor": (thor, ClusterHost())}
    ((name, problem),) = checks.list_engine_mismatches(members, "sglang", "thor")
    assert name == "orin"
    assert_problem(problem, "orin", cause="neither an engine environment nor an image of SGLang")
    own = {**members, "orin": (orin, ClusterHost(image="maker/sglang:1"))}
    assert not list(checks.list_engine_mismatches(own, "sglang", "thor"))


@pytest.mark.parametrize(("free_mib", "full"), [(511, True), (512, False)])
def test_a_full_disk(free_mib: int, *, full: bool) -> None:
    problem = checks.disk_problem("b", {"free_bytes": free_mib << 20, "state": "/s"})
    assert (problem is not None) is full


PART: dict[str, Any] = {
    "role": "worker",
    "head": "10.0.0.1:24000",
    "address": "10.0.0.2",
    "table": {"NCCL_DEBUG": "INFO"},
    "nccl": None,
    "nccl_written": None,
}
RAY: dict[str, Any] = {"name": "medley-ray", "running": True}


LOOKS: list[Any] = [
        pytest.param({"membership": PART, "units": [RAY]}, True, id="as it should be"),
        pytest.param({"membership": None, "units": []}, False, id="nothing runs"),
        pytest.param({"membership": PART, "units": []}, False, id="by hand, and nobody keeps it"),
        pytest.param({"membership": PART, "units": [dict(RAY, running=False)]}, False, id="it ended"),
        pytest.param({"membership": dict(PART, role="head"), "units": [RAY]}, False, id="role"),
        pytest.param({"membership": dict(PART, head="10.1.0.1:1"), "units": [RAY]}, False, id="head"),
        pytest.param({"membership": dict(PART, address="10.1.0.2"), "units": [RAY]}, False, id="wire"),
        pytest.param({"membership": dict(PART, table={}), "units": [RAY]}, False, id="variables"),
        pytest.param({"membership": dict(PART, nccl="/n/libnccl.so.2"), "units": [RAY]}, False, id="NCCL"),
]  # fmt: skip


@pytest.mark.parametrize(("look", "stands"), LOOKS)
def test_what_stands(look: checks.HostState, *, stands: bool) -> None:
    described = {"environment": {"NCCL_DEBUG": "INFO"}, "nccl": None}
    assert checks.is_node_running(look, "worker", "10.0.0.1:24000", "10.0.0.2", described) is stands


@pytest.mark.parametrize(
    ("written", "stands"),
    [
        pytest.param("~/libnccl.so.2", True, id="as written"),
        pytest.param("/home/a/libnccl.so.2", True, id="the path that it means there"),
        pytest.param("~/other/libnccl.so.2", False, id="another file"),
        pytest.param(None, False, id="no more"),
    ],
)
def test_an_nccl_is_compared_as_it_was_written(written: str | None, *, stands: bool) -> None:
    part = dict(PART, nccl="/home/a/libnccl.so.2", nccl_written="~/libnccl.so.2")
    described = {"environment": {"NCCL_DEBUG": "INFO"}, "nccl": written}
    look = checks.HostState(membership=part, units=[RAY])
    assert checks.is_node_running(look, "worker", "10.0.0.1:24000", "10.0.0.2", described) is stands


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
    ((name, problem),) = checks.list_unreached_hosts(said, "a", ADDRESSES)
    assert name == blamed
    fix = f"on {misses}: sudo ufw allow from {ADDRESSES[sees]}"
    assert_problem(problem, f"{sees} ", f" {misses}", cause=(ADDRESSES[misses], "24999", "timed out"))
    assert fix in problem.fix


@pytest.mark.parametrize(("boots", "told"), [(True, False), (None, False), (False, True)])
def test_advice(boots: Any, *, told: bool) -> None:
    assert (checks.find_reboot_note("b", {"boots": boots, "user": "ann"}) is not None) is told


def test_words_of_another_host_are_quoted_in_a_fix() -> None:
    odd = "$(id); x"
    assert shlex.quote(odd) in (checks.find_reboot_note("b", {"boots": False, "user": odd}) or "")
    full = checks.disk_problem("b", {"free_bytes": 0, "state": odd})
    assert full
    assert f"df -h {shlex.quote(odd)};" in full.fix
    image = {"name": odd, "id": "1", "digests": [], "runtime": odd}
    own: dict[str, Any] = {"host": "a", "parts": {"image": {**image, "id": "2"}}}
    with raises_problem("different images") as caught:
        checks.require_same_versions(own, {"host": odd, "parts": {"image": image}}, "10.0.0.1:6379")
    assert f"ssh {shlex.join((odd, odd, 'save', odd))} | " in caught.value.fix


@pytest.mark.parametrize(
    ("runs", "needs", "too_old"),
    [
        pytest.param("12.8", "13.0", True, id="an older major"),
        pytest.param("13.0", "13.2", False, id="an older minor"),
        pytest.param("13.0", "12.6", False, id="a newer one"),
        pytest.param(None, "13.0", True, id="it does not say, and its version is too old"),
        pytest.param(None, "12.6", False, id="it does not say, and its version will do"),
        pytest.param("12.8", None, False, id="no toolkit"),
    ],
)
def test_the_driver(runs: str | None, needs: str | None, *, too_old: bool) -> None:
    found = recorded("spark").replace(driver=NvidiaDriver("570.1", cuda=runs))
    known = config.load_hosts()["spark"]
    toolkit = known.toolkit and known.toolkit.replace(cuda=needs)
    kind = Kind("spark", known.replace(toolkit=toolkit if needs else None), "")
    problem = checks.driver_problem("b", found, kind)
    assert (problem is not None) is too_old
    if problem:
        assert "driver 570.1 runs CUDA 12.8 at most" in problem.cause or "it is 570.1" in problem.cause


@pytest.mark.parametrize(
    ("host", "runs"), [("orin-r36", "12.6"), ("orin-r39", "13.2"), ("thor-r38", "13.0"), ("spark", "13.0")]
)
def test_what_the_driver_runs_is_known_of_a_jetson_too(host: str, runs: str) -> None:
    found = recorded(host)
    silent = found.replace(driver=found.driver.replace(cuda=None))
    assert checks.find_cuda_version(found) == runs
    assert checks.find_cuda_version(silent) == (None if host == "spark" else runs)


def test_a_jetson_taken_for_a_newer_one_has_too_old_a_driver() -> None:
    found = recorded("orin-r36")
    silent = found.replace(driver=found.driver.replace(cuda=None, version=None))
    problem = checks.driver_problem("b", silent, Kind("orin-r39", config.load_hosts()["orin-r39"], ""))
    assert problem
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
    cluster = Cluster.from_table({"hosts": {"spark": {}, "orin": orin}})
    found = {"spark": recorded("spark"), "orin": recorded("orin-r36")}
    members = {name: (find_kind(each), cluster.merge_host(name)) for name, each in found.items()}
    unfit = dict(checks.list_unfit_hosts(found, members, cluster.engine, "spark"))
    assert list(unfit) == left_out
    for problem in unfit.values():
        assert "vLLM 0.12.0 and 0.33.0, Python 3.10 and 3.12" in problem.cause
        assert "JetPack 7.2 on orin, or the same image on all hosts" in problem.fix
        assert "--without orin" in problem.fix


def test_two_orins_out_of_their_image_agree() -> None:
    cluster = Cluster.from_table({"hosts": {"a": {}, "b": {}}, "image": "default"})
    found = dict.fromkeys(("a", "b"), recorded("orin-r36"))
    members = {name: (find_kind(each), cluster.merge_host(name)) for name, each in found.items()}
    assert list(checks.list_unfit_hosts(found, members, cluster.engine, "a")) == []


PARTS = {"python": "cpython 3.12.3", "machine": "aarch64", "lock": "a" * 64, "libc": "glibc 2.39"}


def terms(parts: dict[str, Any], versions: dict[str, str], host: str) -> dict[str, Any]:
    return {"host": host, "parts": parts, "python": parts["python"], **versions}


HEAD = terms(PARTS, {"ray": "2.60.0", "engine": "vLLM 0.32.0"}, "spark-1")


@pytest.mark.parametrize(
    ("changes", "versions"),
    [
        pytest.param({}, {}, id="the same"),
        pytest.param({"libc": "glibc 2.42"}, {}, id="another libc: Nix beside Ubuntu"),
        pytest.param({"machine": "x86_64", "lock": "b" * 64}, {}, id="another machine has its own files"),
    ],
)
def test_these_can_share_a_cluster(changes: dict[str, str], versions: dict[str, str]) -> None:
    ours = terms({**PARTS, **changes}, {"ray": "2.60.0", "engine": "vLLM 0.32.0", **versions}, "rtx")
    require_same_versions(ours, HEAD, "10.0.0.1:24000")


@pytest.mark.parametrize(
    ("changes", "versions", "cause"),
    [
        pytest.param({}, {"ray": "2.59.0"}, "Ray is 2.59.0 here and 2.60.0 on the head", id="Ray"),
        pytest.param(
            {"python": "cpython 3.12.4"},
            {},
            "Python is cpython 3.12.4 here and cpython 3.12.3",
            id="Python's patch",
        ),
        pytest.param(
            {}, {"engine": "vLLM 0.33.0"}, "the engine is vLLM 0.33.0 here and vLLM 0.32.0", id="engine"
        ),
        pytest.param({"lock": "b" * 64}, {}, "lock is bbbbbbbbbbbb here and aaaaaaaaaaaa", id="lock"),
    ],
)
def test_a_difference_names_both_sides(changes: dict[str, str], versions: dict[str, str], cause: str) -> None:
    ours = terms({**PARTS, **changes}, {"ray": "2.60.0", "engine": "vLLM 0.32.0", **versions}, "spark-2")
    with raises_problem("spark-1", "spark-2", cause=cause):
        require_same_versions(ours, HEAD, "10.0.0.1:24000")


def test_a_cluster_of_another_hand_is_a_problem() -> None:
    with raises_problem("10.0.0.1:6379", fix=("ray stop", "medley ray-head")):
        require_same_versions(HEAD, None, "10.0.0.1:6379")


IMAGE = {"name": "maker/vllm:1", "id": "a" * 64, "digests": [], "runtime": "podman"}


@pytest.mark.parametrize(
    ("changes", "machine", "alike"),
    [
        pytest.param({}, "aarch64", True, id="the same"),
        pytest.param({"id": "b" * 64}, "aarch64", False, id="another of this name"),
        pytest.param(
            {"id": "b" * 64, "digests": ["sha256:d"]}, "aarch64", True, id="a registry calls them one"
        ),
        pytest.param({"id": "b" * 64}, "x86_64", True, id="another architecture: versions are compared"),
    ],
)
def test_an_image_is_the_head_s(changes: dict[str, str], machine: str, *, alike: bool) -> None:
    versions = {"ray": "2.60.0", "engine": "vLLM 0.32.0"}
    parts = {"python": "CPython 3.12.3", "machine": "aarch64", "image": {**IMAGE, "digests": ["sha256:d"]}}
    head = terms(parts, versions, "spark-1")
    ours = terms({**parts, "machine": machine, "image": {**IMAGE, **changes}}, versions, "spark-2")
    if alike:
        require_same_versions(ours, head, "10.0.0.1:24000")
        return
    copy = "ssh spark-1 podman save maker/vllm:1 | podman load"
    with raises_problem("spark-1", "spark-2", cause=("a" * 12, "b" * 12), fix=copy):
        require_same_versions(ours, head, "10.0.0.1:24000")


def test_between_an_image_and_an_environment_the_fix_is_no_build() -> None:
    inside = terms({**PARTS, "image": IMAGE}, {"ray": "2.60.0", "engine": "vLLM 0.12.0"}, "orin")
    with pytest.raises(Problem) as caught:
        require_same_versions(inside, HEAD, "10.0.0.1:24000")
    assert "start both with the same image" in caught.value.fix
