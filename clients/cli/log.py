"""`tailrace log`: looks into the files of a log directory.

The commands are for a directory that no running node has open.
"""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, help="Look into the files of a log directory.")
