"""What people and monitoring systems see of a running line: pages and metrics over HTTP, read-only.

The line knows nothing of it. `Feed` stands between the line and its outlet and costs it an append; all else happens on
the monitor's own two threads. How a picture of the line comes about, file by file:

    feed.py       results and frames on their way out
    pictures.py   frames of parts that did not pass, small, in memory
    history.py    the last hour by minute and cause; histograms
    view.py       the line as it stands now, as plain data
    server.py     HTTP: who may look (access.py), pages, streams
    operator.py   the operator page; metrics.py: /metrics. A page is anything with `routes()`: see `node.Monitor`
"""

from edge_app.monitor.node import Monitor

__all__ = ["Monitor"]
