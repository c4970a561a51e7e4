"""Writes docs/configuration.md from the settings classes, so that the page cannot be out of date.

`make proto` calls it; a test compares the page with what this would write.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tailrace.cluster.common.config import components
from tailrace.cluster.common.kinds import MAX_LONG
from tailrace.cluster.common.node_config import NodeConfig
from tailrace.cluster.common.refused import refused_names
from tailrace.cluster.common.settings import Setting
from tailrace.cluster.common.topic_config import TopicConfig

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"

HEAD = """\
# Configuration

This page is generated from the settings classes in cluster/common by `make proto`; edit those.

A node reads a TOML file, then environment variables, then flags of the form `key=value`; of two that set
one thing, the later counts. The file is the one that is named at the start, or by TAILRACE_CONFIG. These
three say the same:

```toml
"log.retention.ms" = 86400000      # a quoted name

[log.retention]                    # or tables
ms = 86400000
```

```sh
TAILRACE_LOG_RETENTION_MS=86400000
```

The end of a name is its unit: `.ms` is milliseconds, `.bytes` is bytes. Lists are TOML arrays, or text with
commas. A setting that is unknown, has a wrong value, or does not fit another one stops the start; the
message names every such setting, where it came from, and, for an unknown one, the nearest that is known.

In the tables, *live* means that the value is meant to change while a node runs (the command for that comes
with the network server); the others need a restart. *Takes effect with the broker* (or another part) means
that this version has nothing which reads the value: it is checked, and changes nothing yet.
"""


def table(settings: tuple[Setting, ...], *, topic: bool) -> list[str]:
    last = "the node's setting" if topic else "live"
    lines = [f"| name | meaning | default | values | {last} |", "|---|---|---|---|---|"]
    for one in sorted(settings, key=lambda known: known.name):
        if topic:
            closing = f"`{one.broker_name}`" if one.broker_name else "none"
        else:
            closing = "live" if one.runtime else "restart"
        also = "".join(f" Also `{alias}`." for alias in one.aliases)
        waits = f" *Accepted and validated; takes effect with {one.waits_for}.*" if one.waits_for else ""
        meaning = f"{one.doc}{also}{waits}"
        lines.append(f"| `{one.name}` | {meaning} | {_default(one)} | {one.kind.range()} | {closing} |")
    return lines


def _default(one: Setting) -> str:
    if one.default == MAX_LONG or one.default == float("inf"):
        return "no limit"
    shown = one.kind.show(one.default)
    return f"`{shown}`" if shown else ("unset" if one.default is None else "empty")


def render() -> str:
    lines = [HEAD]
    for part, component in components(NodeConfig).items():
        lines += [f"## {part.capitalize()} of a node", "", *table(component.settings(), topic=False), ""]
    lines += [
        "## Topics",
        "",
        "Set for one topic; all may be changed while it is in use. What a topic does not set comes from the",
        "node's setting in the last column.",
        "",
        *table(TopicConfig.settings(), topic=True),
        "",
        "## Refused",
        "",
        "Known from Kafka, and not taken here. They are refused rather than ignored.",
        "",
        "| name | why |",
        "|---|---|",
        *(f"| `{name}` | {reason} |" for name, reason in sorted(refused_names().items())),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    PAGE.write_text(render(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.relative_to(PAGE.parent.parent)}\n")


if __name__ == "__main__":
    main()
