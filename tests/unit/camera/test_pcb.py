"""The drawn line: the same part from the same seed, boxes where the picture changed, faults that show."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_app.camera import pcb
from edge_app.config.camera import SyntheticCamera

PRODUCT = pcb.DEFAULT_PRODUCT
seeds = st.integers(0, 10**6)
PLANNED = [(), (), (), ("copper", "pin-hole", "spur", "copper"), (), ()]
DRAWN = (
    pcb.PcbDefect(label="open", box_px=(258, 260, 296, 298)),
    pcb.PcbDefect(label="copper", box_px=(555, 471, 589, 501)),
)


def grey(picture: pcb.PcbPicture) -> np.ndarray:
    return cv2.cvtColor(picture.image, cv2.COLOR_BGR2GRAY)


@settings(max_examples=30, deadline=None)
@given(seed=seeds)
def test_picture_and_boxes(seed: int) -> None:
    picture = pcb.draw(PRODUCT, seed, defective_share=1.0)
    assert picture.image.shape == (640, 640, 3)
    assert picture.image.dtype == np.uint8
    assert tuple(defect.label for defect in picture.defects) == pcb.planned_defects(PRODUCT, seed, 1.0)
    for defect in picture.defects:
        x0, y0, x1, y1 = defect.box_px
        assert 0 <= x0 < x1 <= 640
        assert 0 <= y0 < y1 <= 640
        assert max(x1 - x0, y1 - y0) >= 6 + 2 * pcb.BOX_MARGIN_PX - 1


@settings(max_examples=30, deadline=None)
@given(seed=seeds)
def test_a_defect_shows_in_its_box_and_nowhere_else(seed: int) -> None:
    bad = pcb.draw(PRODUCT, seed, defective_share=1.0)
    good = pcb.draw(PRODUCT, seed, defects=())
    assert good.conditions == bad.conditions
    change = np.abs(grey(bad).astype(int) - grey(good))
    for defect in bad.defects:
        x0, y0, x1, y1 = defect.box_px
        assert change[y0:y1, x0:x1].max() >= 30, defect
        change[y0:y1, x0:x1] = 0
    assert change.max() == 0


def test_same_seed_same_picture_other_seed_other_picture() -> None:
    first = pcb.draw(PRODUCT, 5)
    again = pcb.draw(PRODUCT, 5)
    np.testing.assert_array_equal(first.image, again.image)
    assert first.defects == again.defects
    assert (pcb.draw(PRODUCT, 7).image != first.image).mean() > 0.5


def test_seeds_keep_their_meaning() -> None:
    """If this changes, every seed that anybody wrote down means another part."""
    assert [pcb.planned_defects(1, seed) for seed in range(6)] == PLANNED
    assert pcb.draw(1, 1, defects=("open", "copper")).defects == DRAWN


def test_share_of_defective_parts() -> None:
    planned = [pcb.planned_defects(PRODUCT, pcb.examining_seed(index), 0.4) for index in range(2000)]
    assert sum(1 for labels in planned if labels) / 2000 == pytest.approx(0.4, abs=0.04)
    assert {len(labels) for labels in planned} == {0, 1, 2, 3, 4}
    assert {label for labels in planned for label in labels} == set(pcb.LABELS)
    assert pcb.planned_defects(PRODUCT, 1, 0.0) == ()


def test_training_and_examining_never_meet() -> None:
    training = {pcb.training_seed(index) for index in range(100)}
    examining = {pcb.examining_seed(index) for index in range(100)}
    assert not training & examining
    assert all(pcb.is_training_seed(seed) for seed in training)
    assert not any(pcb.is_training_seed(seed) for seed in examining)
    assert not pcb.is_training_product(PRODUCT)


def test_the_configured_line_runs_the_shipped_product() -> None:
    assert SyntheticCamera(type="synthetic").product == PRODUCT


@settings(max_examples=50, deadline=None)
@given(seed=seeds)
def test_natural_conditions_keep_the_lines_tolerances(seed: int) -> None:
    seen = pcb.natural_conditions(PRODUCT, seed)
    assert np.hypot(*seen.shift_px) <= 6.0
    assert abs(seen.turn_deg) <= 0.4
    assert 0.8 <= seen.gain <= 1.2
    assert seen.blur_px <= 1.2
    assert seen.part_present


def test_asking_for_other_defects_leaves_the_conditions() -> None:
    assert pcb.draw(PRODUCT, 9, defects=("spur",)).conditions == pcb.natural_conditions(PRODUCT, 9)


def test_copper_is_dark_on_bright_laminate_and_reddish() -> None:
    blue, _, red = pcb.draw(PRODUCT, 1, defects=()).image[40:600, 40:600].reshape(-1, 3).mean(axis=0)
    assert red - blue > 20  # swapped channels would show
    levels = grey(pcb.draw(PRODUCT, 1, defects=()))[40:600, 40:600]
    assert np.percentile(levels, 2) < 90
    assert np.percentile(levels, 60) > 150


def test_lens_cap_and_lamp_off_are_dark() -> None:
    seen = pcb.natural_conditions(PRODUCT, 3)
    assert grey(pcb.draw(PRODUCT, 3, conditions=pcb.lens_capped(seen))).mean() < 10
    assert 10 < grey(pcb.draw(PRODUCT, 3, conditions=pcb.lamp_off(seen))).mean() < 35


def test_defocus_takes_the_edges_away() -> None:
    seen = pcb.natural_conditions(PRODUCT, 3)
    sharp = cv2.Laplacian(cv2.GaussianBlur(grey(pcb.draw(PRODUCT, 3)), (0, 0), 1.5), cv2.CV_64F).var()
    soft_picture = pcb.draw(PRODUCT, 3, conditions=pcb.defocused(seen, 6.0))
    soft = cv2.Laplacian(cv2.GaussianBlur(grey(soft_picture), (0, 0), 1.5), cv2.CV_64F).var()
    assert soft < sharp / 5


def test_shift_moves_part_and_boxes() -> None:
    even = replace(pcb.natural_conditions(PRODUCT, 3), slope=(0.0, 0.0), noise_levels=0.0)
    at_home = pcb.draw(PRODUCT, 3, defects=("short",), conditions=even)
    moved = pcb.draw(PRODUCT, 3, defects=("short",), conditions=pcb.shifted(even, 20, -15))
    x0, y0, x1, y1 = at_home.defects[0].box_px
    assert moved.defects[0].box_px == (x0 + 20, y0 - 15, x1 + 20, y1 - 15)
    apart = np.abs(moved.image[40:560, 60:600].astype(int) - at_home.image[55:575, 40:580])
    assert apart.max() <= 2


def test_a_defect_out_of_view_is_not_listed() -> None:
    far = pcb.shifted(pcb.natural_conditions(PRODUCT, 3), 2000, 0)
    assert pcb.draw(PRODUCT, 3, defects=("open",), conditions=far).defects == ()


def test_empty_conveyor_has_no_part_and_no_defects() -> None:
    picture = pcb.draw(PRODUCT, 3, defects=("open",), conditions=pcb.without_part(pcb.natural_conditions(PRODUCT, 3)))
    assert picture.defects == ()
    assert grey(picture).max() < 150


def test_another_product_looks_different() -> None:
    seen = replace(pcb.natural_conditions(PRODUCT, 3), noise_levels=0.0)
    own = grey(pcb.draw(PRODUCT, 3, defects=(), conditions=seen)).astype(int)
    other = grey(pcb.draw(PRODUCT + 2, 3, defects=(), conditions=seen))
    assert (np.abs(own - other) > 60).mean() > 0.05


@pytest.mark.parametrize(("product", "seed"), [(-1, 0), (0, -1)])
def test_negative_numbers_are_refused(product: int, seed: int) -> None:
    with pytest.raises(ValueError, match="wanted integers >= 0"):
        pcb.draw(product, seed)
