"""Every rule of the doctor's fails where it should, and is silent where nothing is wrong."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from medley.cluster import ClusterHost
from medley.doctor.case import of_transcripts
from medley.doctor.checks import Case, Check
from medley.doctor.registry import RULES
from medley.host import health
from medley.host.health import access, gpu, kernel, software
from medley.host_schema import Driver
from medley.network.fabric.types import NetworkOptions
from tests.doctor.faults import (
    AARCH64,
    COMPUTES,
    DROPS,
    FAULTS,
    GONE,
    HEALTHY,
    KNOWN,
    LEFT,
    OWN,
    PAIR,
    PEERS,
    SPEEDS,
    Fault,
    packages,
    pair,
    told,
    two_workstations,
    with_,
)
from tests.host.health.cases import ROOM, answers, case_of, df, old


def checks_of(rule: str, case: Case) -> list[Check]:
    (look,) = (each.look for each in RULES if each.name == rule)
    return list(look(case))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.rule}: {fault.words}")
def test_what_is_wrong_is_found_and_has_a_fix(fault: Fault) -> None:
    found = [check for check in checks_of(fault.rule, fault.case()) if check.state != "ok"]
    check, *_ = [each for each in found if fault.words in each.found]
    assert check.state == fault.state
    assert check.problem is not None
    assert check.problem.cause
    assert fault.fix in check.problem.fix
    assert check.problem.fix
    if check.mend:
        assert check.problem.fix == check.mend.shown


def test_every_rule_has_a_fault_and_a_sound_host() -> None:
    names = {rule.name for rule in RULES}
    assert len(names) == len(RULES)
    assert {fault.rule for fault in FAULTS} == names
    assert {rule for rule, _ in SOUND_OF} == names


SOUND_OF = tuple(
    (rule.name, case)
    for rule in RULES
    for case in (
        told()
        if rule.name in {"answers", "medley", "time", "reach"}
        else with_("thor-r38")
        if rule.name == "power"
        else with_(
            "spark",
            said={software.OWN: f"bin/python\nbin/ray\n{packages('ray-2.60.0', env='')}"},
            members=OWN,
        )
        if rule.name == "own-environment"
        else with_("spark", said={software.MEMBERSHIP: '"role": "worker"\n"address": "192.168.1.10"\n'})
        if rule.name == "address"
        else two_workstations({})
        if rule.name == "peer-memory"
        else with_("rtx-two", said={kernel.PEERS: PEERS})
        if rule.name in {"gpu-memory", "peer-access"}
        else with_("spark", said={health.SPEEDS: "".join(SPEEDS[:2])})
        if rule.name == "speed"
        else with_("spark", fits=("it fits", None))
        if rule.name == "model"
        else pair(),
    )
)


@pytest.mark.parametrize(("rule", "case"), SOUND_OF, ids=[rule for rule, _ in SOUND_OF])
def test_a_sound_host_is_told_to_be_so(rule: str, case: Callable[[], Case]) -> None:
    found = checks_of(rule, case())
    assert found
    assert {check.state for check in found} == {"ok"}, [check.found for check in found]


def test_a_host_with_an_nccl_of_its_own_needs_no_other() -> None:
    lacks = "an engine out of our lock cannot talk to other hosts here; one host can serve"
    assert lacks in {check.found for check in checks_of("kernels", with_("orin-r39")())}
    members = {"orin-r39": ClusterHost(nccl="/n/libnccl.so.2")}
    assert lacks not in {check.found for check in checks_of("kernels", with_("orin-r39", members=members)())}


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_found_on_a_healthy_host(name: str) -> None:
    for made in (case_of({name: None}), old(name)):
        found = [(rule.name, check.found) for rule in RULES for check in rule.look(made) if check.problem]
        assert dict(found) == KNOWN.get(name, {})


@pytest.mark.parametrize(
    "names",
    [
        ("spark-pair-a", "spark-pair-b"),
        ("thor-mgbe-a", "thor-mgbe-b"),
        ("spark-pair-a", "spark-pair-b", "thor-mgbe-a", "thor-mgbe-b"),
        ("spark-gid-drift", "spark-pair-b"),
    ],
    ids="+".join,
)
def test_nothing_is_found_on_a_healthy_group(names: tuple[str, ...]) -> None:
    made = case_of(dict.fromkeys(names))
    found = [(rule.name, check.found) for rule in RULES for check in rule.look(made) if check.problem]
    assert found == []


def test_what_was_not_asked_is_not_known() -> None:
    states = {rule.name: {check.state for check in rule.look(old("spark"))} for rule in RULES}
    asked = {"kind", "driver", "wire", "down", "memory", "shm", "compiler", "gid", "way", "one-subnet"}
    assert all(states[name] <= {"ok"} for name in asked)
    assert states["disk"] == states["secrets"] == states["gpu-users"] == {"unknown"}


def test_hosts_that_reach_each_other_have_no_firewall_in_the_way() -> None:
    found = checks_of("firewall", pair({access.UFW: "ENABLED=yes\n"}, closed={})())
    assert {check.state for check in found} == {"ok"}


def test_a_rule_of_medleys_own_firewall_is_no_fault() -> None:
    own = DROPS.replace("inet rack", "inet medley")
    assert {each.state for each in checks_of("firewall", with_("spark", said={access.NFT: own})())} == {"ok"}


def test_a_host_that_runs_out_of_an_image_needs_no_environment() -> None:
    made = with_("orin-r36", members={"orin-r36": ClusterHost(image="default")})()
    said = [each for name in ("kernels", "containers") for each in checks_of(name, made)]
    assert [each.state for each in said] == ["ok", "ok"]
    missing = with_(
        "orin-r39", said={software.RUNTIMES: ""}, members={"orin-r39": ClusterHost(image="vllm:mine")}
    )()
    (check,) = checks_of("containers", missing)
    assert check.problem
    assert "cluster.toml names an image" in check.problem.cause


def test_our_own_ray_is_no_fault() -> None:
    said = {
        **LEFT,
        software.MEMBERSHIP: '"role": "head"\n"address": "192.168.1.10"\n',
        access.LISTENING: "5DC0 all\n5DC1 all\n",
    }
    made = case_of({"spark": said})
    assert {check.state for check in checks_of("leftovers", made)} == {"ok"}
    assert {check.state for check in checks_of("ports", made)} == {"ok"}


@pytest.mark.parametrize(
    ("name", "free_gib", "packages_", "state", "size"),
    [
        pytest.param("cpu-rack", 5, None, "better", "3 GiB", id="CPU, an environment to build"),
        pytest.param("cpu-rack", 12, None, "ok", "", id="CPU, room for it"),
        pytest.param("cpu-rack", 5, "ray-2.60.0", "ok", "", id="CPU, it has one"),
        pytest.param("spark", 12, None, "better", "10 GiB", id="GPU, an environment to build"),
        pytest.param("spark", 12, "ray-2.60.0", "ok", "", id="GPU, it has one"),
    ],
)
def test_room_for_an_environment_is_that_of_its_device(
    name: str, free_gib: int, packages_: str | None, state: str, size: str
) -> None:
    room = {**ROOM, "environments": ("yes", 200, free_gib)}
    said = {health.DISKS: df(**room), software.PACKAGES: packages(packages_) if packages_ else ""}
    (check, *_) = checks_of("disk", case_of({name: said}))
    assert check.state == state
    if check.problem:
        assert size in check.problem.cause


@pytest.mark.parametrize(
    ("rays", "clusters", "owner"),
    [
        pytest.param("own 40 raylet\n", "", "a program other than medley", id="a Ray of its own"),
        pytest.param("own 40 raylet\n", "40 elsewhere\n", "another state folder", id="another state folder"),
        pytest.param("other 40 raylet\n", "40 elsewhere\n", "another user", id="another user"),
        pytest.param("other 40 raylet\n", "40 here\n", "another user", id="another user, the same folder"),
        pytest.param("other 40 raylet\n", "", "another user", id="another user, whose variables are private"),
    ],
)
def test_a_ray_of_another_is_named_and_no_fix_ends_it(rays: str, clusters: str, owner: str) -> None:
    said = {health.PROCESSES: f"{rays}other 812 earlyoom\n", health.CLUSTERS: clusters}
    (check,) = checks_of("leftovers", case_of({"spark": said}))
    assert check.problem
    assert check.mend is None
    assert "raylet (40)" in check.problem.what
    assert owner in check.problem.cause
    assert not re.search(r"\b(stop|kill|ray-stop)\b", check.problem.fix)


def test_a_ray_in_a_container_of_docker_is_the_members() -> None:
    said = {
        health.PROCESSES: "other 40 raylet\nother 812 earlyoom\n",
        software.MEMBERSHIP: '"role": "worker"\n"address": "192.168.1.10"\n',
    }
    (check,) = checks_of("leftovers", case_of({"spark": said}))
    assert check.state == "ok"


def test_a_transcript_without_the_clusters_of_its_rays_leaves_it_open() -> None:
    said = dict(answers("spark", {health.PROCESSES: "own 40 raylet\n"}))
    del said[health.CLUSTERS]
    (check,) = checks_of("leftovers", of_transcripts({"spark": said}))
    assert check.state == "unknown"


def test_what_medley_serves_is_no_fault() -> None:
    said = {
        **COMPUTES,
        software.SERVING: "8000\n",
        access.LISTENING: "1F40 all\n",
        health.PROCESSES: "own 7 vllm\nother 812 earlyoom\n",
    }
    made = case_of({"spark": said})
    for rule in ("leftovers", "ports", "gpu-users"):
        assert {check.state for check in checks_of(rule, made)} == {"ok"}


def test_an_old_environment_beside_the_one_that_all_have_is_no_fault() -> None:
    env = "vllm-cuda-00000000000"
    older = packages("ray-2.59.0", "vllm-0.31.0", env=f"{env}1")
    newer = packages("ray-2.60.0", "vllm-0.32.0", env=f"{env}2")
    said = {software.PACKAGES: newer}, {software.PACKAGES: newer + older}
    made = case_of(dict(zip(PAIR, said, strict=True)))
    assert {check.state for check in checks_of("versions", made)} == {"ok"}


def test_an_orin_on_jetpack_6_is_no_part_of_sparks() -> None:
    found = checks_of("versions", case_of({"spark-pair-a": None, "orin-pair-a": None}))
    (check,) = [each for each in found if each.state == "wrong"]
    assert check.host == "orin-pair-a"
    assert check.problem
    assert "vLLM 0.12.0 and 0.33.0" in check.problem.cause
    assert "JetPack 7.2" in check.problem.fix


def test_a_host_that_says_nothing_of_its_links_is_not_known_to_be_apart() -> None:
    made = case_of({"spark-pair-a": None, "spark-pair-b": None, "rtx-stuck": None})
    assert made.fabric
    assert {check.host: check.state for check in checks_of("wire", made)} == {
        "rtx-stuck": "unknown",
        "spark-pair-a": "ok",
        "spark-pair-b": "ok",
        "all": "ok",
    }


def test_a_loopback_name_is_said_and_no_fault() -> None:
    (found,) = checks_of("name", case_of({"spark": None}))
    assert "127.0.1.1" in found.found
    assert found.state == "ok"


def test_the_one_that_is_apart_is_named_and_the_others_are_wired() -> None:
    made = case_of(
        {"spark-pair-a": None, "spark-pair-b": None, "rtx-wifi": None},
        head="spark-pair-a",
        wishes=NetworkOptions("192.168.100.0/24"),
    )
    assert set(made.apart) == {"rtx-wifi"}
    assert made.fabric
    assert set(made.fabric.ends) == {"spark-pair-a", "spark-pair-b"}


def test_libcuda_elsewhere_is_no_fault_where_the_hosts_own_loader_finds_it() -> None:
    (check,) = checks_of("driver-libraries", with_("spark", said={gpu.FILES: ""})())
    assert check.state == "unknown"
    (check,) = checks_of("driver-libraries", with_("spark")())
    assert check.found == f"580.95.05, libcuda is {AARCH64}/libcuda.so.1"


def test_folders_of_a_users_own_kind_are_not_known() -> None:
    made = with_("spark", said={gpu.FILES: "", gpu.TOOLKIT: "toolkit\n"})()
    spark = made.hosts["spark"]
    assert spark.kind
    kept = spark.kind.host.model_copy(update={"driver": Driver(directories=("/opt/own",))})
    moved = replace(made, hosts={"spark": replace(spark, kind=replace(spark.kind, host=kept))})
    assert [(each.state, "/opt/own" in each.found) for each in checks_of("driver-libraries", moved)] == [
        ("unknown", True)
    ]


def test_hosts_that_did_not_answer_are_not_compared() -> None:
    case = told()()
    one, other = case.hosts
    alone = replace(case, hosts={one: case.hosts[one]}, silent={other: GONE}, closed=None, fabric=None)
    assert checks_of("twice", alone) == []
    (check,) = checks_of("reach", alone)
    assert (check.state, check.found) == ("unknown", f"hosts did not answer: {other}")
    (check,) = checks_of("reach", replace(case, head=None, closed=None))
    assert "transcripts cannot show it" in check.found


@pytest.mark.parametrize("line", ["644 token;curl x|sh;", "6x9 token", "644 other", "999999999 token"])
def test_odd_words_of_a_report_reach_no_command(line: str) -> None:
    """`doctor --from` prints fixes to paste, and a report's author chooses its words."""
    case = with_("spark", said={software.SECRETS: f"{line}\n"})()
    assert [check.state for check in checks_of("secrets", case)] == ["ok"]
