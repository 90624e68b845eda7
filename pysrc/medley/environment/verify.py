"""Prove an engine environment by imports and kernels."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from medley import config, json_shape, process
from medley.command import UNSET_VARIABLES, Command
from medley.environment import payload
from medley.environment.toolkit import Toolkit, list_toolkit_variables
from medley.environment.virtualenv import Environment
from medley.errors import Problem
from medley.progress import Progress
from medley.schema import TITLES

_PROBE_LIMIT_S = 600
_KERNELS = ("matmul", "silu_and_mul")

Proof = Mapping[str, Any]


def build_script_command(
    environment: Environment, toolkit: Toolkit | None, script: str, *words: str
) -> Command:
    """Return the command of a payload script, with the engine's variables and programs of the toolkit."""
    variables = toolkit.variables if toolkit else {}
    folders = (str(environment.programs), *(toolkit.path if toolkit else ()))
    environ = {
        variable.name: variable.value
        for variable in list_toolkit_variables(variables, folders, os.environ.get("PATH", ""))
    }
    return Command((str(environment.python), str(payload.FOLDER / script), *words), environ, UNSET_VARIABLES)


def prove_environment(environment: Environment, toolkit: Toolkit | None, progress: Progress) -> Proof:
    """Return the output of the probe; raise a Problem if it does not answer."""
    recipe = config.load_recipes()[environment.name]
    probe = build_script_command(environment, toolkit, "probe.py", recipe.device, recipe.engine)
    with progress.stage(f"prove {environment.name}"):
        finished = process.run(probe, limit_s=_PROBE_LIMIT_S, on_line=progress.line)
    if proof := json_shape.parse_last_object(finished.lines):
        return proof
    raise Problem(
        f"{environment.name} does not work",
        cause="\n".join(finished.lines[-6:]) or f"its Python ended with {finished.status}",
        fix=f"rebuild it: medley env clean {environment.name} && medley env build {environment.name}",
    )


def list_failures(proof: Proof) -> Iterator[str]:
    for name, package in proof["packages"].items():
        if "error" in package:
            yield f"import {name}: {package['error']}"
    platform, devices = proof.get("platform"), proof.get("devices")
    if platform is not None and platform != proof["device"]:
        yield f"{_describe_platform(proof)} {_format_result(platform) or 'none'}, not for {proof['device']}"
    if isinstance(devices, Mapping):
        yield f"devices: {devices['error']}"
        return
    if devices == []:
        yield "torch sees no GPU"
    for device in devices or ():
        if device.get("built_for_it") is False:
            arches = " ".join(device["arch_list"])
            yield f"{device['name']} has capability {device['capability']}; torch is built for {arches}"
        for kernel in _KERNELS:
            if not device[kernel].get("ok"):
                yield f"{kernel} on {device['name']}: {_format_result(device[kernel])}"


def find_problem(proof: Proof, name: str) -> Problem | None:
    failures = list(list_failures(proof))
    if not failures:
        return None
    if proof["device"] == "cpu" or any(line.startswith("import ") for line in failures):
        fix = f"rebuild it: medley env clean {name} && medley env build {name}"
    elif any("no kernel image" in line for line in failures):
        fix = "take wheels or an image with code for this GPU: --env, --image; "
        fix += "a Jetson Orin: docs/how-to/jetson-orin.md"
    else:
        fix = "check the driver: nvidia-smi; medley facts shows what was found"
    return Problem(f"{name} does not work on this host", cause="\n".join(failures), fix=fix)


def list_rows(proof: Proof) -> Iterator[tuple[str, str]]:
    """Yield label and value of each result of a proof."""
    yield "python", f"{proof['python']} on {proof['libc']}"
    for name, package in proof["packages"].items():
        yield name, package.get("error") or f"{package['version']} (imported in {package['seconds']} s)"
    if isinstance(platform := proof.get("platform"), str):
        yield "platform", f"{_describe_platform(proof)} {platform or 'none'}"
    devices = proof.get("devices")
    if not isinstance(devices, list):
        return
    for device in devices:
        capability = f", capability {device['capability']}" if "capability" in device else ""
        yield "device", f"{device['name']}{capability}"
        for kernel in _KERNELS:
            yield "kernel", f"{kernel}: {_format_result(device[kernel])}"


def _describe_platform(proof: Proof) -> str:
    return f"{TITLES[proof['engine']]} takes this host's device for"


def _format_result(result: object) -> str:
    if not isinstance(result, Mapping):
        return str(result)
    if "ok" not in result:
        return str(result.get("error", result))
    verdict = "right" if result["ok"] else "WRONG"
    return f"{verdict}, off by {result['error_share']:.1e} of the largest, {result['seconds']} s"
