"""A thermal model of a board in closed loop with the real scheduler, on a stepped clock.

plant.py          the board: heat flow, clocks and throttling, latencies, sessions that start or fail
scenario.py       what happens to it: weather, fans, sensors, NPU faults; YAML, some are shipped in scenarios/
world.py          the board in a scenario
applications.py   the product with the real scheduler, and an application without one
loop.py           frames in, results out
record.py         what came of it
report.py         the table and the plot
"""
