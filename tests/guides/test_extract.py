"""What is read out of a guide's text, on guides made up here."""

from pathlib import Path

import pytest

from tools.guides import extract
from tools.guides.extract import Fact, facts_of

PAGE = """\
# A guide

- [On two hosts](#on-two-hosts)

## On two hosts
## Step 1

Set `NCCL_DEBUG=INFO`, or give `--seed 7`; VLLM_HOST_IP is your own.

```bash
## --not-a-flag in a remark
export IFACE=eth7 TOKEN="a b"
docker run -it --gpus all --ulimit memlock=-1 -v /a:/b -e NCCL_SOCKET_IFNAME=$IFACE \\
  -e VLLM_HOST_IP=<IP of node 1> maker/engine:1 bash
docker exec -it box /bin/bash -c '
  vllm serve ORG/NAME \\
    --tensor-parallel-size 2 --eager'
ARGS=(--block --address="${HEAD}:6379")
ray start "${ARGS[@]}"
mpirun -np 2 -x NCCL_IB_HCA=mlx5 --mca key "a value" program
curl http://localhost --header 'x: --y'
```

```bash
me@host:~$ ip addr show
    inet 10.0.0.1
sudo tee /etc/netplan/1.yaml > /dev/null <<EOF
network:
  ethernets:
    eth7:
      dhcp4: no
      addresses: [10.0.0.1/24]
EOF
```
"""
AFTER_PROMPTS = """\
```bash
sudo tee /etc/netplan/1.yaml > /dev/null <<EOF
network:
  ethernets:
    eth7:
      dhcp4: no
      addresses: [10.0.0.1/24]
EOF
sudo ip addr add 10.0.0.2/24 dev eth7
```

```python
llm = LLM(model="ORG/NAME", tensor_parallel_size=2)
```
"""


def read(folder: Path, text: str, name: str = "guide.md") -> list[Fact]:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return facts_of(file)


def items(found: list[Fact]) -> list[tuple[str, str, str]]:
    return [(each.command, each.item, each.value) for each in found]


def test_settings_of_commands_and_of_the_text(tmp_path: Path) -> None:
    found = read(tmp_path, PAGE)
    assert {each.section for each in found} == {"On two hosts / Step 1"}
    assert {each.source for each in found} == {"guide"}
    assert items(found) == [
        ("text", "NCCL_DEBUG", "INFO"),
        ("text", "--seed", "7"),
        ("text", "VLLM_HOST_IP", ""),
        ("export", "IFACE", "eth7"),
        ("export", "TOKEN", "a b"),
        ("docker run", "-it", ""),
        ("docker run", "--gpus", "all"),
        ("docker run", "--ulimit memlock", "-1"),
        ("docker run", "-v /a", "/b"),
        ("docker run", "NCCL_SOCKET_IFNAME", "eth7"),
        ("docker run", "VLLM_HOST_IP", "⟨IP-of-node-1⟩"),
        ("docker run", "IMAGE", "maker/engine:1"),
        ("vllm serve ORG/NAME", "MODEL", "ORG/NAME"),
        ("vllm serve ORG/NAME", "--tensor-parallel-size", "2"),
        ("vllm serve ORG/NAME", "--eager", ""),
        ("ray start", "--block", ""),
        ("ray start", "--address", "${HEAD}:6379"),
        ("mpirun", "-np", "2"),
        ("mpirun", "NCCL_IB_HCA", "mlx5"),
        ("mpirun", "--mca key", ""),
    ]


def test_links_and_python_arguments(tmp_path: Path) -> None:
    assert items(read(tmp_path, AFTER_PROMPTS)) == [
        ("link", "dhcp4", "false"),
        ("link", "address", "eth7 10.0.0.1/24"),
        ("link", "address", "eth7 10.0.0.2/24"),
        ("python", "model", "ORG/NAME"),
        ("python", "tensor_parallel_size", "2"),
    ]


def test_commands_in_a_program(tmp_path: Path) -> None:
    text = (
        'RING = "-x NCCL_NET_PLUGIN=none "\nrun(f"mpirun -np {len(nodes)} "\n    f"{RING}-x NCCL_NET=IB")\n'
    )
    assert items(read(tmp_path, text, "setup.py")) == [
        ("mpirun", "NCCL_NET_PLUGIN", "none"),
        ("mpirun", "-np", "⟨value⟩"),
        ("mpirun", "NCCL_NET", "IB"),
    ]


def test_a_program_that_nobody_has_looked_at_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="new-tool: put it into PROGRAMS"):
        read(tmp_path, "```bash\nnew-tool --fast\n```\n")


def test_a_readme_has_the_name_of_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "playbook"
    folder.mkdir()
    assert {each.source for each in read(folder, "Give `--seed 7`.\n", "README.md")} == {"playbook"}


def test_other_guides_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extract, "FACTS", tmp_path / "facts.csv")
    extract.write([Fact("b", "s", "text", "--x", "1"), Fact("a", "s", "text", "--y", "")])
    extract.write([Fact("b", "s", "text", "--x", "2")])
    assert [(each.source, each.value) for each in extract.read()] == [("a", ""), ("b", "2")]
