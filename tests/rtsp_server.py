"""An RTSP server on loopback, for the tests: `rtsp_server.py PORT [still]` serves rtsp://127.0.0.1:PORT/line.

Runs on the system's Python with Debian's packages (PACKAGES in hazard/test_camera_rtsp.py). 160x120 at 25 fps, H.264:
a moving ball, or with `still` a picture that never changes. Prints "ready" once it listens.
"""

import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer  # noqa: E402

port = sys.argv[1]
pattern = "white" if "still" in sys.argv[2:] else "ball"
Gst.init(None)
factory = GstRtspServer.RTSPMediaFactory()
factory.set_shared(True)
factory.set_launch(
    f"( videotestsrc is-live=true pattern={pattern} ! video/x-raw,width=160,height=120,framerate=25/1"
    " ! x264enc tune=zerolatency speed-preset=ultrafast key-int-max=25 ! rtph264pay name=pay0 pt=96 )"
)
server = GstRtspServer.RTSPServer()
server.set_address("127.0.0.1")
server.set_service(port)
server.get_mount_points().add_factory("/line", factory)
if not server.attach(None):
    sys.exit(f"port {port} is in use")
print("ready", flush=True)
GLib.MainLoop().run()
