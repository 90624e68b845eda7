"""Add to a site the engine source of each host, and the reason why that engine cannot run a model."""

import os

from medley.environment import engine_source
from medley.environment.engine_source import EngineRequest
from medley.planner.placement import PlacementOptions
from medley.planner.site import Site
from medley.schema import EngineName, Model


def add_engine_sources(
    site: Site, placement: PlacementOptions, request: EngineRequest, model: Model | None = None
) -> Site:
    """Return the site with the engine sources of its hosts; those of a running cluster agree already."""
    if site.rank_order:
        return site
    uses_images, engine = placement.launcher != "mp", placement.engine
    locked = engine_source.read_locked_versions()
    has_toolkit = site.has_nix_toolkit or engine_source.has_nix_toolkit()
    pinned = has_toolkit or bool(os.environ.get(engine_source.NCCL_PATH_VARIABLE))
    sources = {
        name: engine_source.choose_engine_source(
            host.kind, engine, request, locked, can_use_image=uses_images, has_nix_toolkit=pinned
        )
        for name, host in site.hosts.items()
    }
    return add_engine_gaps(site.replace(engine_sources=sources, has_nix_toolkit=has_toolkit), engine, model)


def add_engine_gaps(site: Site, engine: EngineName, model: Model | None) -> Site:
    """Return the site with the reason, per host, why its engine cannot run this model."""
    sources = {
        name: source.replace(
            lacking_reason=engine_source.find_model_gap(model, engine, source.versions.get(engine))
        )
        for name, source in site.engine_sources.items()
    }
    return site.replace(engine_sources=sources)
