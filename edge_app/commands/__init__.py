"""The commands of `edge_app`, a module each: `add_arguments(parser)` and `run(args) -> int` (an exit code)."""
