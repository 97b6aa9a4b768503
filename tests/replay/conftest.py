"""The compiled toy, for tests that replay a board's temperatures."""

from toy_plans import toy_plans

__all__ = ["toy_plans"]
