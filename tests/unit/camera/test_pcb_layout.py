"""A board's intact copper: nets apart from each other, each in one piece, each opened by a cut."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from edge_app.camera.pcb_defects import pieces
from edge_app.camera.pcb_layout import BOARD_PX, CANVAS_PX, KEEP_IN_PX, Layout, lay_out

PRODUCTS = (0, 1, 7, 85)


@pytest.fixture(scope="module", params=PRODUCTS)
def layout(request: pytest.FixtureRequest) -> Layout:
    return lay_out(request.param)


def test_copper_is_where_nets_are(layout: Layout) -> None:
    assert layout.copper.shape == layout.nets.shape == (CANVAS_PX, CANVAS_PX)
    assert set(np.unique(layout.copper)) == {0, 255}
    np.testing.assert_array_equal(layout.copper > 0, layout.nets > 0)
    assert 0.05 < float((layout.copper > 0).mean()) < 0.5


def test_every_net_is_one_piece_and_apart_from_the_others(layout: Layout) -> None:
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (13, 13))  # 6 px about every pixel
    for net in range(1, int(layout.nets.max()) + 1):
        own = np.where(layout.nets == net, 255, 0).astype(np.uint8)
        assert pieces(own, 8) == 1
        others_near = (cv2.dilate(own, disc) > 0) & (layout.nets > 0) & (layout.nets != net)
        assert not others_near.any(), f"net {net}"


def test_copper_keeps_inside_the_board(layout: Layout) -> None:
    y, x = np.nonzero(layout.copper)
    low, high = BOARD_PX[0] + KEEP_IN_PX, BOARD_PX[1] - KEEP_IN_PX
    assert low <= min(x.min(), y.min())
    assert max(x.max(), y.max()) <= high


def test_a_cut_anywhere_on_a_trace_opens_its_net(layout: Layout) -> None:
    assert len(layout.cuts) >= 20
    for x, y, direction, width in layout.cuts[::5]:
        net = layout.nets[int(y), int(x)]
        own = np.where(layout.nets == net, 255, 0).astype(np.uint8)
        angle = direction * np.pi / 4
        across = np.array([-np.sin(angle), np.cos(angle)]) * (width / 2 + 2)
        middle = np.array((x, y))
        start, end = np.rint([middle - across, middle + across]).astype(int)
        cv2.line(own, tuple(map(int, start)), tuple(map(int, end)), 0, 3)
        assert pieces(own, 8) == 2, f"cut at {x}, {y}"


def test_the_product_number_is_printed_as_copper(layout: Layout) -> None:
    assert 300 < int((layout.marks > 0).sum()) < 6000
    assert not (layout.marks & ~layout.copper).any()


def test_a_product_is_always_the_same_and_no_two_are_alike() -> None:
    first = lay_out(85).copper.copy()
    lay_out.cache_clear()
    np.testing.assert_array_equal(lay_out(85).copper, first)
    assert (lay_out(85).copper != lay_out(87).copper).mean() > 0.02


def test_kept_layouts_cannot_be_written_to() -> None:
    layout = lay_out(85)
    for array in (layout.copper, layout.nets, layout.marks, layout.cuts):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1
