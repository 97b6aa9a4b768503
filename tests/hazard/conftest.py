"""The compiled toy, for tests of plans that fail."""

from toy_plans import toy_plans

__all__ = ["toy_plans"]
