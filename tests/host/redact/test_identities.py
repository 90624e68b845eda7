"""People and hosts are not named; what explains a network or an error stays."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from medley.host.redact import Redactor
from medley.host.redact.identities import Identities, is_host_name
from medley.host.redact.named_values import WORDS


@pytest.mark.parametrize(
    "text",
    [
        "    Serial Number                         : 1324021000042",
        "Serial Number : 1324021000042",
        '"serial": "1324021000042"',
        "ID_SERIAL=1324021000042",
        "    GPU PDI                               : 0x1324021000042abc",
        "/home/carol/models",
        "/Users/carol/models",
        "/data/home/carol/models",
        "C:\\Users\\carol\\models",
        "file:///home/carol/x",
        "%2Fhome%2Fcarol%2Fx",
        '"\\/home\\/carol\\/x"',
        "~carol/models",
        "USER=carol LOGNAME=carol",
        "carol     1234  0.0  1.2 123456 7890 ?  Sl  10:00  0:01 python",
        "mail carol@corp.example.com about it",
        "ssh carol@spark-2.corp.internal",
        "ssh carol@spark-9 uptime",
        "ssh carol@10.0.0.2",
        "scp carol@spark-9:/x .",
        "Name: carol.lan",
        "carol.io",
        "spark.carol.ai",
        "spark-1.carol.com.au",
        "gpu.carol.co.jp",
        "CAROL.IO",
        "https://carol.dev/x",
        "wss://spark.carol.cloud:8443/x",
        "spark-1.carol.no",
        "carol.local",
        "spark-1.carol.lab",
        "3c:6d:66:01:02:03",
        "3C:6D:66:01:02:03",
        "enx3c6d66010203",
        "8.8.4.4",
        "http://8.8.4.4:8000/v1",
        "[2a00:1450:4001:80b::200e]:8000",
        "ec2-8-8-4-4",
        "cannot reach 8.8.4.4. Then it ended",
        "8.8.4.4, 8.8.4.4; (8.8.4.4) <8.8.4.4> 8.8.4.4/24. 8.8.4.4:80. 8.8.4.4...",
        "8.8.4.4_eth0 host_8.8.4.4 rank-8.8.4.4-0 8.8.4.4-8.8.4.4",
        "cannot reach 2a00:1450:4001:80b::200e. Then",
        "2a00:1450:4001:80b::200e%eth0. [2a00:1450:4001:80b::200e%eth0]:80. [2a00:1450::1].",
        "peer_2a00:1450:4001:80b::200e_x 2a00:1450:4001:80b::200e-x ::ffff:8.8.4.4.",
        "3c:6d:66:01:02:03. if_3c:6d:66:01:02:03_up 3c-6d-66-01-02-03. if_3c-6d-66-01-02-03_up",
        "3c6d.6601.0203. enx3c6d66010203_up fe80::3e6d:66ff:fe01:203%enp1s0.".replace("3e6d", "3c6d"),
        "spark-1.carol.museum. gpu.carol.berlin:8000",
        "http://gpu.carol.pizza:8000/v1 tcp://carol.zone:1",
        "failed to resolve 'gpu.carol.quest'",
        "Name or service not known: gpu.carol.zone",
        "HTTPConnectionPool(host='gpu.carol.quest', port=443)",
        "--host gpu.carol.zone",
        "ssh gpu.carol.zone uptime",
        "gpu.carol.xn--p1ai",
        "rank0_gpu.carol.io_eth0 gpu.carol.io-0",
        "Gpu.carol.io does not answer",
    ],
)
def test_nobody_is_named(text: str) -> None:
    shown = Identities().replace(f"before\n{text} after").lower()
    for word in ("carol", "corp", "1324021000042", "3c:6d", "3c6d", "8.8.4.4", "8-8-4-4", "2a00"):
        assert word not in shown
    assert shown.startswith("before\n")


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.1 192.168.1.5:8000 127.0.0.1 fe80::1 fd00:1::2 169.254.1.2 100.64.0.1",
        "NVIDIA GB10, NVIDIA Thor, NVIDIA GeForce RTX 5090, Orin",
        "580.126.09 6.8.12-1021-tegra 13.0.48 vllm-0.33.0 2.9.1+cu130 r36.4.4",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:94",
        "vllm.v1.engine.core torch.cuda.is_available() torchvision.io numpy.linalg threading.local",
        "model-00001-of-00002.safetensors main.rs libc.so.6 install.sh README.md model.pt kernel.cu x.py",
        "self.model.to(device) config.json engine.log uv.lock medley.toml a.b.c",
        "https://huggingface.co/Qwen/Qwen3-8B https://github.com/a/b nvcr.io/nvidia/vllm https://docs.vllm.ai/en",
        "00000000:01:00.0 0000:0f:00.0 pci@0000:00 root@spark uv@0.5 python@3.12",
        "serial: none, serial port",
        "/home/.cache ~/models /root/x",
        "file.It works. Then, e.g. this. i.e. that",
        "nvidia_cudnn_cu13-9.13.0.50-py3-none nvidia-cudnn-cu12==9.10.2.21 libcublas.so.13.1.0.3",
        "libnccl2_2.28.3.1-1+cuda13.0 cudnn-9.10.2.21 v8.8.4.4 8.8.4.4.1 8.8.4.4a",
        "model.layers.in_proj args.local_rank config.net_type a.b.is_contiguous x.y.no_grad",
        "tp_group.device.id my_tensor.io a.b_c.network Config.io mlp.expert",
        "foo_::add(x) std::dead::beef at::Tensor 00:0f:00.0.",
        "hostname: main.py host engine.log address torch.cuda.memory https://docs.vllm.ai/en.",
    ],
)
def test_what_explains_stays(text: str) -> None:
    assert Identities().replace(text) == text


@pytest.mark.parametrize(
    "text", ["spark-1", "SPARK-1", "Spark-1", "http://SPARK-1:8000", "SPARK-1.local", "ann@Spark-1"]
)
def test_a_known_host_is_renamed_in_any_case(text: str) -> None:
    assert "spark-1" not in Redactor(["spark-1"], ["ann"]).text(text).lower()


def test_host_names() -> None:
    assert all(
        map(is_host_name, ("a.io", "a.b.ai", "x.com.au", "x.jp", "X.DE", "thor.fritz.box", "my_host.local"))
    )
    assert not any(
        map(is_host_name, ("x.py", "libc.so", "a.b.so", "x.Io", "1.2.de", "github.com", "x.example.net"))
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rank_spark-1_0 log-spark-1-eth0", "rank_host-1_0 log-host-1-eth0"),
        ("spark-1.carol.anything. spark-1.carol.lab:80", "host-1. name-1.example.net:80"),
        ("spark-1.log spark-1.tar.gz spark-10 xspark-1", "host-1.log host-1.tar.gz spark-10 xspark-1"),
        ("desk_eth0 standing-desk desk.carol.anything", "host-2_eth0 standing-desk host-2"),
        ("ann_models ann.v1.engine", "ann_models user.v1.engine"),
    ],
)
def test_a_known_host_between_signs(text: str, shown: str) -> None:
    assert Redactor(["spark-1", "desk"], ["ann"]).text(text) == shown


BEFORE = ("", " ", "(", "[", "'", '"', "=", ": ", "_", "rank-", "rank_", "<", "/", ",", "|")
BEHIND = ("", ".", ". Then", ", ", ")", "]", "'", ":8000", "_eth0", "-0", ";", "\n", "...", "/24", ">", "?")


@given(st.ip_addresses(), st.sampled_from(BEFORE), st.sampled_from(BEHIND))
def test_a_global_address_is_hidden_between_all_signs(
    address: IPv4Address | IPv6Address, before: str, behind: str
) -> None:
    assume(address.is_global and not address.is_multicast)
    assume(address.version == 4 or not (address.ipv4_mapped or before == ": " or behind.startswith(":")))
    assert str(address) not in Identities().replace(f"at {before}{address}{behind}")


@given(st.from_regex(r"gpu-[a-z]{2,8}(\.[a-z]{2,8}){1,2}", fullmatch=True), st.sampled_from(BEHIND[:-2]))
def test_a_host_of_a_url_is_hidden_under_any_domain(name: str, behind: str) -> None:
    assume(name.rpartition(".")[2] not in WORDS["hosts"]["file_endings"])
    assert name not in Identities().replace(f"at http://{name}{behind}")
