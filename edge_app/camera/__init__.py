"""Cameras: where frames come from. `open_camera` is the only way to one; each kind is a module of its own."""

from __future__ import annotations

from edge_app.camera.base import Camera, missed_between
from edge_app.config.camera import Camera as CameraSection
from edge_app.config.camera import FolderCamera, GigeCamera, MirrorCamera, SyntheticCamera
from edge_app.config.pipeline import is_live

__all__ = ["Camera", "frame_px", "make_camera", "missed_between", "open_camera"]


def make_camera(section: CameraSection) -> Camera:
    """The camera that a pipeline names, not opened yet; imports that camera's module alone."""
    if isinstance(section, FolderCamera):
        from edge_app.camera.folder import FolderSource

        return FolderSource(section)
    if isinstance(section, SyntheticCamera):
        from edge_app.camera.synthetic import SyntheticSource

        return SyntheticSource(section)
    if isinstance(section, MirrorCamera):
        from edge_app.camera.mirror import MirrorSource

        return MirrorSource(section)
    if isinstance(section, GigeCamera):
        from edge_app.camera.gige import GigeSource

        return GigeSource(section)
    if is_live(section.path, section.live):
        from edge_app.camera.live import LiveSource

        return LiveSource(section)
    from edge_app.camera.video import VideoFileSource

    return VideoFileSource(section)


def open_camera(section: CameraSection) -> Camera:
    """The camera that a pipeline names, opened. Raises CameraError."""
    camera = make_camera(section)
    camera.open()
    return camera


def frame_px(section: CameraSection) -> tuple[int, int] | None:
    """Width, height of a camera's frames; None where they may differ. It is opened to be asked, and let go again.

    Raises:
        CameraError: the source can't be had.
    """
    camera = open_camera(section)
    try:
        return None if camera.width is None or camera.height is None else (camera.width, camera.height)
    finally:
        camera.close()
