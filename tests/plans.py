"""The plans in tests/plans/: what `medley plan` prints for each model on each cluster.

python -m tests.plans          write them anew, to be read in review: git diff tests/plans
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from medley import config, origin, origins
from medley.beside import Beside, files
from medley.engine import Serving
from medley.imagined import imagined
from medley.instead import placed
from medley.layout.printed import lines
from medley.placement import Wanted
from medley.problem import Problem
from medley.recipe import Order, steps
from medley.recognised import kind_of
from medley.site import Site
from medley.tables import Model, Shape
from medley.trust import Trust, warning
from medley.typed import typed
from medley.weights import Weights

FOLDER = Path(__file__).parent / "plans"
CLUSTERS: Mapping[str, str] = {
    "spark": "spark:1",
    "spark-2": "spark:2",
    "spark-2-thor-2": "spark:2,thor:2",
    "orin": "orin:1",
    "orin-2": "orin:2",
    "orin-r39-2": "orin-r39:2",
    "spark-2-orin": "spark:2,orin:1",
    "spark-orin-r39": "spark:1,orin-r39:1",
    "spark-rtx-pro-6000": "spark:1,rtx:1",
    "rtx-5090": "rtx-5090:1",
    "cpu-4": "cpu:4",
}


HOME = {
    "MEDLEY_STATE": "/home/you/.local/state/medley",
    "MEDLEY_CACHE": "/home/you/.cache/medley",
    "HF_HOME": "/home/you/.cache/huggingface",
}


def expected() -> Iterator[tuple[str, Site, str, Model, Shape]]:
    """Each plan's file name, and what it is of."""
    models = {name: model for name, model in config.models().items() if model.shape}
    for cluster, kinds in CLUSTERS.items():
        bare = Site({name: (facts, kind_of(facts)) for name, facts in imagined(kinds).items()})
        for name, model in models.items():
            assert model.shape
            site = origins.chosen(bare, Wanted(), origin.Asked(), model)
            yield f"{cluster}+{name}.txt", site, name, model, model.shape


def printed(file: str, site: Site, name: str, model: Model, shape: Shape) -> str:
    weights = Weights(name, str(model.repository), model)
    stands = Beside(
        files=files(model.needs, "vllm", trusted=False), warnings=tuple(warning(weights, Trust()))
    )
    asked = ("medley", "plan", name, "--hosts", CLUSTERS[file.partition("+")[0]])
    order = Order(weights, Serving(weights.target, name), beside=stands, typed=asked)
    try:
        choice = placed(order, shape, site)
    except Problem as problem:
        return f"{problem}\n"
    told = (f"beside the weights: {each}" for each in stands.why())
    return "\n".join((*lines(name, choice), *told, "", *typed(steps(order, shape, choice, site)))) + "\n"


def main() -> None:
    os.environ |= HOME
    FOLDER.mkdir(exist_ok=True)
    for file, site, name, model, shape in expected():
        (FOLDER / file).write_text(printed(file, site, name, model, shape))


if __name__ == "__main__":
    main()
