"""People and hosts are not named; what explains a network or an error stays."""

import pytest

from medley.host.redact import Redactor
from medley.host.redact.identities import Identities, is_host_name


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
