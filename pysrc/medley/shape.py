"""A model's shape is known from its table, from what medley made, from a folder, or from the hub."""

from math import prod
from pathlib import Path

from medley import checkpoint, demo, hub
from medley.checkpoint import Checkpoint
from medley.safetensors import Tensor
from medley.shape_of_config import shape_of_config
from medley.tables import Made, Shape
from medley.weights import Weights


def shape(weights: Weights) -> Shape:
    """The model's shape, its weights neither fetched nor read; a Problem if it cannot be had."""
    if weights.model and weights.model.shape:
        return weights.model.shape
    if weights.model and weights.model.made:
        return of_made(weights.model.made)
    if weights.local:
        return shape_of_config(checkpoint.read(Path(weights.target)))
    return shape_of_config(hub.checkpoint(weights.target))


def of_made(made: Made) -> Shape:
    """That of a model that need not be written yet."""
    tensors = {name: Tensor("BF16", size, 2 * prod(size)) for name, size in demo.shapes(made).items()}
    return shape_of_config(Checkpoint("the made model", demo.config(made), tensors))
