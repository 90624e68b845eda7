"""Origins are where the hosts of a site have their engines from, for what is wanted of them."""

import os
from dataclasses import replace

from medley import origin
from medley.placement import Wanted
from medley.site import Site
from medley.tables import Model


def chosen(site: Site, wanted: Wanted, asked: origin.Asked, model: Model | None = None) -> Site:
    """The site with the origins of its hosts, for this model; those of a running cluster agree already."""
    if site.order:
        return site
    kinds = {name: kind for name, (_, kind) in site.hosts.items()}
    images, engine = wanted.launcher != "mp", wanted.engine
    locked = origin.locked()
    pinned = any(os.environ.get(name) for name in ("MEDLEY_FLAKE", "MEDLEY_TOOLKIT", origin.OWN_NCCL))
    found = {
        name: origin.origin(kind, engine, asked, locked, images=images, pinned=pinned)
        for name, kind in kinds.items()
    }
    known = {
        name: replace(each, lacks=origin.unknown(model, engine, each.versions.get(engine)))
        for name, each in found.items()
    }
    return replace(site, origins=known)
