"""List the commands to type on each host for a plan; `start_steps.py` shows how far a start has come."""

import shlex
from collections.abc import Iterator, Mapping

from medley import credentials
from medley.cluster.node import NodeSpec, build_node_spec
from medley.command import AnnotatedCommand
from medley.engine import refused_flags
from medley.engine.accepted_flags import read_release_flags
from medley.engine.launch import LaunchOrder
from medley.environment.engine_source import EngineRequest, EngineSource
from medley.environment.tools import NO_TOOLS
from medley.host_schema import ENGINE_TABLES
from medley.model import shape
from medley.network import ports
from medley.network.fabric import per_host
from medley.network.fabric.choice import Endpoint, NetworkOptions
from medley.planner import Layout, list_devices, list_hosts, list_pipelines
from medley.planner.choose import Choice
from medley.planner.fit import compute_fit
from medley.planner.plan import adapt_to_version
from medley.planner.site import Site
from medley.progress import Output
from medley.schema import (
    DEFAULT_ENGINE,
    EngineName,
)
from medley.serving.alternatives import plan_order
from medley.serving.engine_sources import add_engine_sources
from medley.serving.launch_plan import build_plan
from medley.serving.launches import RayEndpoint, build_launches
from medley.serving.prepare import Job
from medley.values import Value

_TOKEN_FILE = ".local/state/medley/token"  # noqa: S105 - a head's file, relative to its home folder


class LaunchStep(Value):
    """A command to type on a host, and the process that it starts."""

    host: str
    shell_text: str
    started_process: AnnotatedCommand
    """The process that it starts, without the variables of that host's toolchain."""
    image: str | None = None
    """The container image, if any."""
    why: tuple[str, ...] = ()
    is_ray_start: bool = False
    """Whether it starts Ray on the host, which `medley up` does on all hosts."""
    source_switch: tuple[str, ...] = ()
    """The switch that chooses the engine source, and its value; cluster.toml has it as a key of the host."""


def list_hypothetical_steps(job: Job, site: Site, output: Output) -> Iterator[LaunchStep]:
    """Return the commands for hypothetical hosts, where each replica is a separate server."""
    request, order = job.request, job.order
    engine_request = EngineRequest(request.image.image if request.image else None, request.environment)
    site = add_engine_sources(site, order.placement, engine_request, order.weights.model)
    order = order.replace(
        placement=order.placement.replace(needs_one_server=order.placement.launcher == "mp")
    )
    return list_steps(order, plan_order(order, shape.find_shape(order.weights, output.progress), site), site)


def list_steps(order: LaunchOrder, choice: Choice, site: Site) -> Iterator[LaunchStep]:
    """Yield the commands in order, one replica after the other."""
    pipelines = list_pipelines(choice.layout)
    if order.placement.launcher == "mp" and len(list_hosts(choice.layout)) > 1:
        yield from _list_steps_without_ray(order, choice, site)
        return
    if len(pipelines) == 1:
        yield from _list_pipeline_steps(order, choice, site)
        return
    concurrency = -(-order.placement.concurrency // len(pipelines))
    placement = order.placement.replace(concurrency=concurrency, needs_one_server=True)
    workload = choice.workload.replace(load=choice.workload.load.replace(concurrency=concurrency))
    next_ports = dict.fromkeys(site.hosts, order.serving.port)
    for stages in pipelines:
        layout = choice.layout.replace(stages=stages, other_pipelines=())
        host = list_hosts(layout)[0]
        serving = order.serving.replace(port=next_ports[host])
        next_ports[host] += 1
        replica_choice = choice.replace(layout=layout, fit=compute_fit(workload, layout))
        replica_order = order.replace(placement=placement, serving=serving)
        yield from _list_pipeline_steps(replica_order, replica_choice, site)


def _list_pipeline_steps(order: LaunchOrder, choice: Choice, site: Site) -> Iterator[LaunchStep]:
    """Yield the commands of one server: those of its Ray, if there is none yet, then serve."""
    placement, hosts = order.placement, list_hosts(choice.layout)
    head = hosts[0]
    used_site, ray = site.select_hosts(hosts), None
    if len(hosts) > 1:
        network = choice.network or site.build_network(placement.network, placement.engine)
        endpoints = network.find_endpoints(hosts)
        if not site.rank_order:
            yield from list_ray_steps(network.options, site, endpoints, placement.engine)
        used_site = used_site.replace(addresses={host: end.address for host, end in endpoints.items()})
        ray = RayEndpoint(_format_ray_address(endpoints[head].address), credentials.find_token_file())
    plan, source = build_plan(order, choice, site, "ray" if ray else "solo"), site.find_engine_source(head)
    chat = order.serving.choose_chat_format(order.weights.model)
    plan = adapt_to_version(plan, placement.engine, source.versions.get(placement.engine), chat)
    if ray:
        places = tuple(used_site.addresses[device.host] for device in list_devices(choice.layout))
        plan = plan.replace(rank_addresses=places)
    command = build_launches(order, choice.layout, plan, used_site, ray=ray)[head].annotated_command
    _require_known_flags(order, command, source)
    # A cluster's engine is from the environment of its Ray.
    environment = () if ray else source.switches
    partition = ""
    if placement.partition:
        partition = f"{ENGINE_TABLES[placement.engine].partition_variable}={placement.partition} "
    shell_text = partition + _format_context_variable(order, choice)
    shell_text += _format_serve_command(order, choice.layout, site, environment)
    yield LaunchStep(head, shell_text, command, site.find_image(head), plan.why)


def _list_steps_without_ray(order: LaunchOrder, choice: Choice, site: Site) -> Iterator[LaunchStep]:
    """Yield the server on the first host, then the command of each host that joins it."""
    hosts = list_hosts(choice.layout)
    network = choice.network or site.build_network(order.placement.network, order.engine)
    addresses = {host: end.address for host, end in network.find_endpoints(hosts).items()}
    used_site = site.select_hosts(hosts).replace(addresses=addresses)
    plan = build_plan(order, choice, site, "mp")
    join_command = (
        f"ssh {shlex.quote(hosts[0])} cat {_TOKEN_FILE} | medley join {addresses[hosts[0]]} --token-file -"
    )
    for host, launch in build_launches(order, choice.layout, plan, used_site).items():
        command, source = launch.annotated_command, site.find_engine_source(host)
        if host == hosts[0]:
            _require_known_flags(order, command, source)
            shell_text = _format_context_variable(order, choice)
            shell_text += _format_serve_command(order, choice.layout, site, source.switches)
            yield LaunchStep(host, shell_text, command, why=plan.why)
        else:
            yield LaunchStep(host, " ".join((join_command, shlex.join(source.switches))).rstrip(), command)


def _require_known_flags(order: LaunchOrder, command: AnnotatedCommand, source: EngineSource) -> None:
    """Raise a Problem for flags that a lock's release would refuse; an image's is not known here."""
    version = source.versions.get(order.engine)
    if version and not source.is_image:
        accepted_flags = read_release_flags(order.engine, version)
        refused_flags.require_known_flags(
            accepted_flags, command.flags, order.engine_flags, table_file=order.table_file
        )


def list_ray_steps(
    options: NetworkOptions, site: Site, endpoints: Mapping[str, Endpoint], engine: EngineName
) -> Iterator[LaunchStep]:
    """Yield the commands of Ray on these hosts, the first of which is the head."""
    head, *workers = endpoints
    engine_switch = () if engine == DEFAULT_ENGINE else ("--engine", engine)
    address, token = endpoints[head].address, credentials.find_token_file()
    network = per_host.choose_head_network(head, site.facts[head], options, {})
    link: tuple[str, ...] = ()
    if options.link is not None or network.endpoint.interface != endpoints[head].interface:
        link = ("--link", endpoints[head].interface)
        network = per_host.choose_head_network(head, site.facts[head], options.replace(link=link[1]), {})
    source = site.find_engine_source(head).switches
    yield LaunchStep(
        head,
        shlex.join(("medley", "ray-head", *link, *engine_switch, *source)),
        _build_node(head, site, engine).build_head_command(network, token),
        site.find_image(head),
        is_ray_start=True,
        source_switch=source,
    )
    for host in workers:
        source = site.find_engine_source(host).switches
        pair = {name: site.facts[name] for name in (head, host)}
        head_address = per_host.HeadAddress(head, address)
        network = per_host.choose_worker_network(pair, host, head_address, options, {})
        shell_text = f"ssh {shlex.quote(head)} cat {_TOKEN_FILE} | medley ray-worker {address} --token-file -"
        shell_text = " ".join((shell_text, *engine_switch, shlex.join(source))).rstrip()
        command = _build_node(host, site, engine).build_worker_command(
            network, token, _format_ray_address(address)
        )
        yield LaunchStep(
            host, shell_text, command, site.find_image(host), is_ray_start=True, source_switch=source
        )


def _build_node(host: str, site: Site, engine: EngineName) -> NodeSpec:
    facts, kind = site.hosts[host]
    return build_node_spec(facts, kind, NO_TOOLS, slots=None, path="", engine=engine)


def _format_ray_address(head_address: str) -> str:
    return f"{head_address}:{ports.RayPorts.gcs}"


def _format_context_variable(order: LaunchOrder, choice: Choice) -> str:
    """Return the assignment that allows a context beyond config.json's; empty if it needs none."""
    if not (choice.workload.is_beyond_config and order.placement.allows_longer_context):
        return ""
    return f"{ENGINE_TABLES[order.engine].context_variable}=1 "


def _format_serve_command(
    order: LaunchOrder, layout: Layout, site: Site, environment: tuple[str, ...]
) -> str:
    engine_flags = ("--", *order.engine_flags) if order.engine_flags else ()
    return shlex.join((*_list_serve_words(order, layout, site), *environment, *engine_flags))


def _list_serve_words(order: LaunchOrder, layout: Layout, site: Site) -> Iterator[str]:
    placement, hosts, model_files = order.placement, list_hosts(layout), order.weights
    # A folder by its path, because its name may be that of a known model.
    yield from ("medley", "serve", model_files.name if model_files.model else model_files.target)
    if len(hosts) > 1 or site.rank_order:
        yield from ("--hosts", str(len(hosts)))
    elif len(list_devices(layout)) < sum(device.host == hosts[0] for device in site.list_devices()):
        yield from ("--gpus", ",".join(str(device.index) for device in list_devices(layout)))
    if placement.balances_experts:
        yield "--eplb"
    yield from order.model_extras.list_options()
    for name, value, default in (
        ("--launcher", placement.launcher, None),
        ("--engine", placement.engine, DEFAULT_ENGINE),
        ("--kv-type", placement.kv_type, "auto"),
        ("--for", placement.goal, "latency"),
        ("--concurrency", placement.concurrency, 1),
        ("--context", placement.context, None),
        ("--tp", placement.sizes.tensor_parallel, None),
        ("--pp", placement.sizes.stages, None),
        ("--transport", placement.network.transport, None),
        ("--served-model-name", order.serving.name, model_files.name),
        ("--host", order.serving.address, ports.LOOPBACK_ADDRESS),
        ("--port", order.serving.port, ports.API_PORT),
    ):
        if value != default:
            yield from (name, str(value))
