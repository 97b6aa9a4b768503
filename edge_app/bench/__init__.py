"""Benchmarks: `edge_app bench` re-makes every figure that this product states about its speed, beside its peers'.

A part is a module with `figures(options)`, which yields rows of the table as they are measured. Nothing here passes or
fails: goals are shown beside what was reached. A peer that is not installed is shown as such, never left out.
"""
