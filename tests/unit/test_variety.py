from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edge_app.frame import PixelFormat
from edge_app.preprocess import Source, measure
from edge_app.variety import Varied, describe

points = st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=1, max_size=40)


def kept_of(stream: list[tuple[int, int]], count: int) -> tuple[Varied, dict[int, tuple[int, int]]]:
    varied, kept = Varied(count), {}
    for point in stream:
        number = varied.offer(np.array(point, float))
        if number is not None:
            kept[number] = point
    return varied, kept


@given(points, st.integers(1, 8))
def test_the_smallest_distance_never_falls_once_all_places_are_taken(
    stream: list[tuple[int, int]], count: int
) -> None:
    varied, least = Varied(count), -1.0
    for index, point in enumerate(stream):
        number = varied.offer(np.array(point, float))
        if index < count:
            assert number == index
        else:
            assert varied.least_distance >= least
        least = varied.least_distance if index >= count - 1 else -1.0
    again, kept = kept_of(stream, count)
    assert len(kept) == min(count, len(stream))
    apart = [np.hypot(a[0] - b[0], a[1] - b[1]) for i, a in kept.items() for j, b in kept.items() if i < j]
    if apart:
        assert np.isclose(again.least_distance, min(apart))


def test_near_copies_give_way_to_what_is_different() -> None:
    _, kept = kept_of([(0, 0), (1, 0), (0, 1), (100, 0), (0, 100), (50, 50), (1, 1)], 3)
    assert set(kept.values()) == {(0, 0), (100, 0), (0, 100)} or len(set(kept.values()) & {(100, 0), (0, 100)}) == 2


def test_light_blur_and_content_set_frames_apart() -> None:
    rng = np.random.default_rng(0)
    base = np.kron(rng.integers(40, 200, (12, 16)), np.ones((20, 20))).astype(np.uint8)

    def description(picture: np.ndarray) -> np.ndarray:
        picture = np.ascontiguousarray(picture, np.uint8)
        return describe(measure(picture, Source(320, 240, PixelFormat.GRAY8)))

    same = np.linalg.norm(description(base) - description(base))
    assert same == 0
    for other in (base * 0.7, np.flip(base, 0), np.clip(base + rng.normal(0, 12, base.shape), 0, 255)):
        assert np.linalg.norm(description(base) - description(other)) > 1
