"""Etched defects: each is truly what its label says, at the box that is given."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_app.camera.pcb_defects import APART_PX, LABELS, LEAST_PX, TOPOLOGY, etch, pieces
from edge_app.camera.pcb_layout import BOARD_PX, lay_out

products = st.sampled_from((1, 7, 85))
streams = st.integers(0, 2**32)


def stream(number: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(number))


def test_labels_are_deeppcbs_in_deeppcbs_order() -> None:
    assert LABELS == ("open", "short", "mousebite", "spur", "copper", "pin-hole")


@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("label", LABELS)
@given(product=products, number=streams)
def test_defect_changes_the_whole_board_as_its_name_says(label: str, product: int, number: int) -> None:
    intact = lay_out(product).copper
    copper, defects = etch(product, stream(number), (label,))
    more_copper, more_laminate = TOPOLOGY[label]
    if more_copper is not None:
        assert pieces(copper, 8) - pieces(intact, 8) == more_copper
    if more_laminate is not None:
        assert pieces(~copper, 4) - pieces(~intact, 4) == more_laminate
    assert [defect.label for defect in defects] == [label]


@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("label", LABELS)
@given(product=products, number=streams)
def test_box_is_tight_about_the_changed_pixels_and_big_enough_to_see(label: str, product: int, number: int) -> None:
    copper, (defect,) = etch(product, stream(number), (label,))
    y, x = np.nonzero(copper != lay_out(product).copper)
    assert defect.box == (x.min(), y.min(), x.max() + 1, y.max() + 1)
    x0, y0, x1, y1 = defect.box
    assert max(x1 - x0, y1 - y0) >= LEAST_PX
    assert len(x) >= 18
    assert BOARD_PX[0] < min(x0, y0)
    assert max(x1, y1) < BOARD_PX[1]


@pytest.mark.parametrize("label", ["short", "spur", "copper"])
def test_only_these_add_copper(label: str) -> None:
    copper, _ = etch(85, stream(3), (label,))
    assert not (lay_out(85).copper & ~copper).any()


@pytest.mark.parametrize("label", ["open", "mousebite", "pin-hole"])
def test_only_these_remove_copper(label: str) -> None:
    copper, _ = etch(85, stream(3), (label,))
    assert not (copper & ~lay_out(85).copper).any()


@settings(max_examples=25, deadline=None)
@given(product=products, number=streams)
def test_an_open_breaks_one_net_in_two(product: int, number: int) -> None:
    layout = lay_out(product)
    copper, (defect,) = etch(product, stream(number), ("open",))
    x0, y0, x1, y1 = defect.box
    hit = set(np.unique(layout.nets[y0:y1, x0:x1][copper[y0:y1, x0:x1] != layout.copper[y0:y1, x0:x1]]))
    assert len(hit) == 1
    assert pieces(np.where(layout.nets == hit.pop(), copper, 0).astype(np.uint8), 8) == 2


@settings(max_examples=25, deadline=None)
@given(product=products, number=streams)
def test_a_short_joins_nets_that_were_apart(product: int, number: int) -> None:
    layout = lay_out(product)
    copper, _ = etch(product, stream(number), ("short",))
    count, piece = cv2.connectedComponents(copper, connectivity=8)
    members = [set(np.unique(layout.nets[piece == index])) - {0} for index in range(1, count)]
    assert sorted(len(nets) for nets in members)[-2:] == [1, 2]


@settings(max_examples=25, deadline=None)
@given(product=products, number=streams, labels=st.lists(st.sampled_from(LABELS), min_size=2, max_size=4))
def test_several_defects_lie_apart_and_nothing_else_changes(product: int, number: int, labels: list[str]) -> None:
    copper, defects = etch(product, stream(number), labels)
    assert [defect.label for defect in defects] == labels
    changed = copper != lay_out(product).copper
    for index, defect in enumerate(defects):
        x0, y0, x1, y1 = defect.box
        assert changed[y0:y1, x0:x1].any()
        changed[y0:y1, x0:x1] = False
        for other in defects[:index]:
            dx = (x0 + x1 - other.box[0] - other.box[2]) / 2
            dy = (y0 + y1 - other.box[1] - other.box[3]) / 2
            assert max(abs(dx), abs(dy)) >= APART_PX
    assert not changed.any()


def test_no_defects_leave_the_layout_as_it_is() -> None:
    copper, defects = etch(85, stream(0), ())
    assert defects == ()
    np.testing.assert_array_equal(copper, lay_out(85).copper)


def test_unknown_label_is_named() -> None:
    with pytest.raises(ValueError, match=r"wanted one of open, short.*got 'scratch'"):
        etch(85, stream(0), ("scratch",))
