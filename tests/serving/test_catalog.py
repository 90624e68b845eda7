"""Every known model on given hosts, each as `plan` would have it."""

from medley import config
from medley.planner.placement import PlacementOptions, place_model
from medley.serving.catalog import list_entries
from tests.planner.imagined import shape, site


def test_each_is_what_plan_says() -> None:
    on, wanted = site("spark:2"), PlacementOptions(concurrency=4)
    found = {each.name: each for each in list_entries(on, wanted, {})}
    assert list(found) == sorted(config.load_models())
    for name in ("gpt-oss-120b", "qwen3-8b"):
        assert found[name].choice == place_model(shape(name), on, wanted)
        assert found[name].refusal is None
    large = found["deepseek-v3"]
    assert (large.choice, large.layout) == (None, None)
    assert large.refusal is not None
    assert large.refusal.endswith("GiB short in the nearest of 5 layouts")


def test_the_size_is_that_of_all_its_weights() -> None:
    (one,) = (
        each for each in list_entries(site("spark"), PlacementOptions(), {}) if each.name == "gpt-oss-120b"
    )
    made = shape("gpt-oss-120b")
    assert one.size_bytes == made.layers * made.layer_bytes + made.embedding_bytes + made.head_bytes
    assert 64e9 < one.size_bytes < 67e9, "published: 65.2 GB"
