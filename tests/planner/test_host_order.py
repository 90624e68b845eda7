import pytest

from medley.planner import Layout, format_layers
from medley.planner.host_order import place_in_rank_order
from tests.planner.layouts import pipeline, pro6000, spark, thor
from tests.problems import raises_problem

UNLIKE = pipeline((60, (pro6000(),)), (20, (spark(1),)))
PAIRS = pipeline((46, (spark(1), spark(2))), (34, (thor(1), thor(2))))


@pytest.mark.parametrize(
    ("layout", "order", "partition", "permutation"),
    [
        pytest.param(UNLIKE, ("rtx-1", "spark-1"), "60,20", (0, 1), id="as planned"),
        pytest.param(UNLIKE, ("spark-1", "rtx-1"), "20,60", (1, 0), id="the other way round"),
        pytest.param(
            UNLIKE, ("thor-1", "spark-1", "rtx-1"), "20,60", (1, 0), id="with one that takes no part"
        ),
        pytest.param(PAIRS, ("thor-2", "thor-1", "spark-1", "spark-2"), "34,46", (1, 0), id="pairs"),
        pytest.param(
            pipeline((30, (spark(1),)), (30, (spark(2),)), (20, (thor(1),))),
            ("spark-2", "thor-1", "spark-1"),
            "30,20,30",
            (1, 2, 0),
            id="three",
        ),
        # Each pair is made of equal hosts still, only not of those planned.
        pytest.param(
            pipeline((41, (spark(1), spark(2))), (39, (spark(3), spark(4)))),
            ("spark-1", "spark-3", "spark-2", "spark-4"),
            "41,39",
            (0, 1),
            id="equal hosts in other pairs",
        ),
        pytest.param(
            pipeline((30, (pro6000(1, 0),)), (20, (pro6000(1, 1),)), (30, (spark(),))),
            ("spark-1", "rtx-1"),
            "30,30,20",
            (2, 0, 1),
            id="two GPUs of a host follow each other",
        ),
    ],
)
def test_landing(
    layout: Layout, order: tuple[str, ...], partition: str, permutation: tuple[int, ...]
) -> None:
    found, places = place_in_rank_order(layout, order)
    assert (format_layers(found), places) == (partition, permutation)
    assert [device.host for stage in found.stages for device in stage.devices] == [
        host for host in order for stage in layout.stages for device in stage.devices if device.host == host
    ]


def test_the_order_tears_unlike_pairs_apart() -> None:
    with raises_problem("spark-1, thor-1", cause="spark-1, spark-2 + thor-1, thor-2") as caught:
        place_in_rank_order(PAIRS, ("spark-1", "thor-1", "spark-2", "thor-2"))
    assert "ray-stop" in caught.value.fix
