"""A thermal model of a board in closed loop with the real scheduler, on a stepped clock.

plant.py      the board: heat flow, clocks and throttling, latencies, sessions that start or fail
scenario.py   what happens to it: weather, fans, sensors, NPU faults; YAML, some are shipped in scenarios/
loop.py       frames in, results out: with the scheduler, and as an application without one would do
report.py     the table and the plot
"""
