"""Every rule of the doctor's fails where it should, and is silent where nothing is wrong."""

import re
from collections.abc import Callable

import pytest

from medley.cluster.cluster_file import ClusterHost
from medley.doctor.checks import Check, Examination
from medley.doctor.examination import examine_transcripts
from medley.doctor.registry import RULES
from medley.host import health
from medley.host.health import access, gpu, kernel, software
from medley.host_schema import Driver
from medley.network.fabric.choice import NetworkOptions
from tests.doctor.faults import (
    AARCH64,
    COMPUTES,
    DROPS,
    EXPECTED_SUMMARIES,
    FAULTS,
    GONE,
    HEALTHY,
    LEFT_RAYS,
    OWN_ENVIRONMENT,
    PAIR,
    PEERS,
    SPEEDS,
    Fault,
    cluster_pair,
    packages,
    pair,
    two_workstations,
    with_,
)
from tests.host.health.cases import ROOM, answers, case_of, df, old


def checks_of(rule: str, case: Examination) -> list[Check]:
    (run,) = (candidate.run for candidate in RULES if candidate.name == rule)
    return list(run(case))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.rule}: {fault.summary}")
def test_what_is_wrong_is_found_and_has_a_fix(fault: Fault) -> None:
    failures = [check for check in checks_of(fault.rule, fault.case()) if check.state != "ok"]
    check, *_ = [failure for failure in failures if fault.summary in failure.summary]
    assert check.state == fault.state
    assert check.problem is not None
    assert check.problem.cause
    assert fault.fix in check.problem.fix
    assert check.problem.fix
    if check.fix:
        assert check.problem.fix == check.fix.command_text


def test_every_rule_has_a_fault_and_a_sound_host() -> None:
    names = {rule.name for rule in RULES}
    assert len(names) == len(RULES)
    assert {fault.rule for fault in FAULTS} == names
    assert {rule for rule, _ in SOUND_OF} == names


SOUND_OF = tuple(
    (rule.name, case)
    for rule in RULES
    for case in (
        cluster_pair()
        if rule.name in {"answers", "medley", "time", "reach"}
        else with_("thor-r38")
        if rule.name == "power"
        else with_(
            "spark",
            overrides={
                software.USER_ENVIRONMENT_QUESTION: f"bin/python\nbin/ray\n{packages('ray-2.60.0', env='')}"
            },
            members=OWN_ENVIRONMENT,
        )
        if rule.name == "own-environment"
        else with_(
            "spark", overrides={software.MEMBERSHIP_QUESTION: '"role": "worker"\n"address": "192.168.1.10"\n'}
        )
        if rule.name == "address"
        else two_workstations({})
        if rule.name == "peer-memory"
        else with_("rtx-two", overrides={kernel.PEERS_QUESTION: PEERS})
        if rule.name in {"gpu-memory", "peer-access"}
        else with_("spark", overrides={health.SPEEDS_QUESTION: "".join(SPEEDS[:2])})
        if rule.name == "speed"
        else with_("spark", model_fit=("it fits", None))
        if rule.name == "model"
        else pair(),
    )
)


@pytest.mark.parametrize(("rule", "case"), SOUND_OF, ids=[rule for rule, _ in SOUND_OF])
def test_a_sound_host_is_told_to_be_so(rule: str, case: Callable[[], Examination]) -> None:
    results = checks_of(rule, case())
    assert results
    assert {check.state for check in results} == {"ok"}, [check.summary for check in results]


def test_a_host_with_an_nccl_of_its_own_needs_no_other() -> None:
    lacks = "an engine out of our lock cannot talk to other hosts here; one host can serve"
    assert lacks in {check.summary for check in checks_of("kernels", with_("orin-r39")())}
    members = {"orin-r39": ClusterHost(nccl="/n/libnccl.so.2")}
    assert lacks not in {
        check.summary for check in checks_of("kernels", with_("orin-r39", members=members)())
    }


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_found_on_a_healthy_host(name: str) -> None:
    for case in (case_of({name: None}), old(name)):
        failures = [(rule.name, check.summary) for rule in RULES for check in rule.run(case) if check.problem]
        assert dict(failures) == EXPECTED_SUMMARIES.get(name, {})


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
    case = case_of(dict.fromkeys(names))
    failures = [(rule.name, check.summary) for rule in RULES for check in rule.run(case) if check.problem]
    assert failures == []


def test_what_was_not_asked_is_not_known() -> None:
    states = {rule.name: {check.state for check in rule.run(old("spark"))} for rule in RULES}
    recorded = {"kind", "driver", "wire", "down", "memory", "shm", "compiler", "gid", "way", "one-subnet"}
    assert all(states[name] <= {"ok"} for name in recorded)
    assert states["disk"] == states["secrets"] == states["gpu-users"] == {"unknown"}


def test_hosts_that_reach_each_other_have_no_firewall_in_the_way() -> None:
    results = checks_of("firewall", pair({access.UFW_QUESTION: "ENABLED=yes\n"}, connection_problems={})())
    assert {check.state for check in results} == {"ok"}


def test_a_rule_of_medleys_own_firewall_is_no_fault() -> None:
    rules = DROPS.replace("inet rack", "inet medley")
    assert {
        check.state
        for check in checks_of("firewall", with_("spark", overrides={access.NFT_QUESTION: rules})())
    } == {"ok"}


def test_a_host_that_runs_out_of_an_image_needs_no_environment() -> None:
    case = with_("orin-r36", members={"orin-r36": ClusterHost(image="default")})()
    results = [check for name in ("kernels", "containers") for check in checks_of(name, case)]
    assert [check.state for check in results] == ["ok", "ok"]
    missing = with_(
        "orin-r39",
        overrides={software.RUNTIMES_QUESTION: ""},
        members={"orin-r39": ClusterHost(image="vllm:mine")},
    )()
    (check,) = checks_of("containers", missing)
    assert check.problem
    assert "cluster.toml names an image" in check.problem.cause


def test_our_own_ray_is_no_fault() -> None:
    overrides = {
        **LEFT_RAYS,
        software.MEMBERSHIP_QUESTION: '"role": "head"\n"address": "192.168.1.10"\n',
        access.LISTENING_QUESTION: "5DC0 all\n5DC1 all\n",
    }
    case = case_of({"spark": overrides})
    assert {check.state for check in checks_of("leftovers", case)} == {"ok"}
    assert {check.state for check in checks_of("ports", case)} == {"ok"}


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
    overrides = {
        health.DISKS_QUESTION: df(**room),
        software.PACKAGES_QUESTION: packages(packages_) if packages_ else "",
    }
    (check, *_) = checks_of("disk", case_of({name: overrides}))
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
    overrides = {health.PROCESSES_QUESTION: f"{rays}other 812 earlyoom\n", health.CLUSTERS_QUESTION: clusters}
    (check,) = checks_of("leftovers", case_of({"spark": overrides}))
    assert check.problem
    assert check.fix is None
    assert "raylet (40)" in check.problem.what
    assert owner in check.problem.cause
    assert not re.search(r"\b(stop|kill|ray-stop)\b", check.problem.fix)


def test_a_ray_in_a_container_of_docker_is_the_members() -> None:
    overrides = {
        health.PROCESSES_QUESTION: "other 40 raylet\nother 812 earlyoom\n",
        software.MEMBERSHIP_QUESTION: '"role": "worker"\n"address": "192.168.1.10"\n',
    }
    (check,) = checks_of("leftovers", case_of({"spark": overrides}))
    assert check.state == "ok"


def test_a_transcript_without_the_clusters_of_its_rays_leaves_it_open() -> None:
    transcript = dict(answers("spark", {health.PROCESSES_QUESTION: "own 40 raylet\n"}))
    del transcript[health.CLUSTERS_QUESTION]
    (check,) = checks_of("leftovers", examine_transcripts({"spark": transcript}))
    assert check.state == "unknown"


def test_what_medley_serves_is_no_fault() -> None:
    overrides = {
        **COMPUTES,
        software.SERVING_QUESTION: "8000\n",
        access.LISTENING_QUESTION: "1F40 all\n",
        health.PROCESSES_QUESTION: "own 7 vllm\nother 812 earlyoom\n",
    }
    case = case_of({"spark": overrides})
    for rule in ("leftovers", "ports", "gpu-users"):
        assert {check.state for check in checks_of(rule, case)} == {"ok"}


def test_an_old_environment_beside_the_one_that_all_have_is_no_fault() -> None:
    env = "vllm-cuda-00000000000"
    older = packages("ray-2.59.0", "vllm-0.31.0", env=f"{env}1")
    newer = packages("ray-2.60.0", "vllm-0.32.0", env=f"{env}2")
    overrides = {software.PACKAGES_QUESTION: newer}, {software.PACKAGES_QUESTION: newer + older}
    case = case_of(dict(zip(PAIR, overrides, strict=True)))
    assert {check.state for check in checks_of("versions", case)} == {"ok"}


def test_an_orin_on_jetpack_6_is_no_part_of_sparks() -> None:
    results = checks_of("versions", case_of({"spark-pair-a": None, "orin-pair-a": None}))
    (check,) = [result for result in results if result.state == "wrong"]
    assert check.host == "orin-pair-a"
    assert check.problem
    assert "vLLM 0.12.0 and 0.33.0" in check.problem.cause
    assert "JetPack 7.2" in check.problem.fix


def test_a_host_that_says_nothing_of_its_links_is_not_known_to_be_apart() -> None:
    case = case_of({"spark-pair-a": None, "spark-pair-b": None, "rtx-stuck": None})
    assert case.fabric
    assert {check.host: check.state for check in checks_of("wire", case)} == {
        "rtx-stuck": "unknown",
        "spark-pair-a": "ok",
        "spark-pair-b": "ok",
        "all": "ok",
    }


def test_a_loopback_name_is_said_and_no_fault() -> None:
    (check,) = checks_of("name", case_of({"spark": None}))
    assert "127.0.1.1" in check.summary
    assert check.state == "ok"


def test_the_one_that_is_apart_is_named_and_the_others_are_wired() -> None:
    case = case_of(
        {"spark-pair-a": None, "spark-pair-b": None, "rtx-wifi": None},
        head="spark-pair-a",
        wishes=NetworkOptions("192.168.100.0/24"),
    )
    assert set(case.network_problems) == {"rtx-wifi"}
    assert case.fabric
    assert set(case.fabric.endpoints) == {"spark-pair-a", "spark-pair-b"}


def test_libcuda_elsewhere_is_no_fault_where_the_hosts_own_loader_finds_it() -> None:
    (check,) = checks_of("driver-libraries", with_("spark", overrides={gpu.FILES_QUESTION: ""})())
    assert check.state == "unknown"
    (check,) = checks_of("driver-libraries", with_("spark")())
    assert check.summary == f"580.95.05, libcuda is {AARCH64}/libcuda.so.1"


def test_folders_of_a_users_own_kind_are_not_known() -> None:
    case = with_("spark", overrides={gpu.FILES_QUESTION: "", gpu.TOOLKIT_QUESTION: "toolkit\n"})()
    spark = case.hosts["spark"]
    assert spark.kind
    table = spark.kind.table.replace(driver=Driver(directories=("/opt/own",)))
    changed_case = case.replace(hosts={"spark": spark.replace(kind=spark.kind.replace(table=table))})
    assert [
        (check.state, "/opt/own" in check.summary) for check in checks_of("driver-libraries", changed_case)
    ] == [("unknown", True)]


def test_hosts_that_did_not_answer_are_not_compared() -> None:
    case = cluster_pair()()
    first, second = case.hosts
    first_case = case.replace(
        hosts={first: case.hosts[first]},
        silent_hosts={second: GONE},
        connection_problems=None,
        fabric=None,
    )
    assert checks_of("twice", first_case) == []
    (check,) = checks_of("reach", first_case)
    assert (check.state, check.summary) == ("unknown", f"hosts did not answer: {second}")
    (check,) = checks_of("reach", case.replace(head=None, connection_problems=None))
    assert "transcripts cannot show it" in check.summary


@pytest.mark.parametrize("line", ["644 token;curl x|sh;", "6x9 token", "644 other", "999999999 token"])
def test_odd_words_of_a_report_reach_no_command(line: str) -> None:
    """`doctor --from` prints fixes to paste, and a report's author chooses its words."""
    case = with_("spark", overrides={software.SECRETS_QUESTION: f"{line}\n"})()
    assert [check.state for check in checks_of("secrets", case)] == ["ok"]
