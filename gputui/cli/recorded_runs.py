"""`runs`: the list of recorded runs, and the page of one."""

import shutil
import sys
import time
from collections.abc import Mapping
from typing import Any

from gputui.model.plain_text import aligned, safe_lines
from gputui.presets import Figure
from gputui.presets.outcome import json_text
from gputui.runs import RunRecord, find, recorded, text
from gputui.runs.records import as_object

SHOWN = 30
"""Runs that are listed as text; `--json` has them all."""


def list_runs(as_json: bool) -> int:
    """Print the recorded runs, the newest first."""
    found = recorded()
    if as_json:
        print(json_text([as_object(record) for record in found], indent=1))
        return 0
    if not found:
        print("no run yet; gputui --run svd makes one", file=sys.stderr)
        return 0
    cut = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print("\n".join(line[:cut] for line in table(found[:SHOWN])))
    if len(found) > SHOWN:
        print(f"… and {len(found) - SHOWN:,} older; --json has them all", file=sys.stderr)
    return 0


def table(found: tuple[RunRecord, ...]) -> list[str]:
    """Return runs, a line each under a head."""
    rows = [
        [record.id, record.state, _took(record), record.words.partition("\n")[0]]
        for record in found
    ]
    return aligned([["run", "state    ", "     took", "result"], *rows], right=[2])


def show_run(id_: str, as_json: bool) -> int:
    """Print one run; raises UsageError when the id names none, or several."""
    record = find(id_)
    if as_json:
        print(json_text(as_object(record), indent=1))
    else:
        print("\n\n".join(parts(record)))
    return 0


def parts(record: RunRecord) -> list[str]:
    """Return the parts of a run's page: the facts, its result, its figure."""
    kept = record.result
    found = [text({key: value for key, value in facts(record).items() if value != ""})]
    if result := kept.get("result"):
        found.append(text(result, kept.get("units")))
    if kept.get("figure"):
        found.append(drawn(kept["figure"]))
    return [safe_lines(part) for part in found]


def drawn(figure: Figure | Mapping[str, Any]) -> str:
    """Return a figure, or that of a record, as text for a terminal."""
    from gputui.tui.rendering.figures import figure_text

    return figure_text(figure)


def facts(record: RunRecord) -> dict[str, Any]:
    """Return a run's fields other than its result, as text; "" if missing."""
    kept = record.result
    stages = [f"{stage} {elapsed_s:.1f} s" for stage, elapsed_s in record.timings.items()]
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.started_at))
    return {
        "run": record.id,
        "preset": record.preset,
        "parameters": _pairs(record.parameters),
        "state": str(record.state),
        "machine": record.elsewhere,
        "error": record.error.replace("\n", "\n    "),
        "hosts": record.hosts or "this machine",
        "failed hosts": ", ".join(each.get("host", "") for each in kept.get("failed_hosts", ())),
        "workers": ", ".join(record.workers),
        "backend": kept.get("backend", record.backend),
        "started": started,
        "took": _took(record) + (f": {', '.join(stages)}" if stages else ""),
        "restarts": str(record.restarts or ""),
        "versions": _pairs({"gputui": record.version} | kept.get("versions", {}), " "),
        "saved": "\n".join(record.saved),
        "log": str(record.log) if record.log.exists() else "",
    }


def _pairs(mapping: Mapping[str, Any], between: str = "=") -> str:
    return ", ".join(f"{key}{between}{value}" for key, value in mapping.items() if value != [])


def _took(record: RunRecord) -> str:
    return "–" if record.elapsed_s is None else f"{record.elapsed_s:,.1f} s"
