"""Tailrace: a distributed, replicated, partitioned commit log for Python and Spark.

Importing this package imports none of its parts, so that a Spark worker or a small tool pays only for what
it touches.
"""

from __future__ import annotations

__version__ = "0.1.0"
