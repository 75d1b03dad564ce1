"""`presets` and `runs`: what can be computed, and what was."""

import json
import sys
import time
from dataclasses import asdict
from typing import Any

from gputui.presets import Parameter, Preset, get, names


def presets(name: str | None, as_json: bool) -> int:
    """Print all presets, or one with its parameters; raises PresetError for an unknown name."""
    chosen = [get(name)] if name else [get(each) for each in names()]
    if as_json:
        print(json.dumps([preset_object(preset) for preset in chosen], indent=1))
    elif name:
        print(described(chosen[0]))
    else:
        width = max(len(preset.name) for preset in chosen)
        for preset in chosen:
            print(f"{preset.name:<{width}}  {preset.summary}")
        print("\ngputui presets NAME shows its parameters.", file=sys.stderr)
    return 0


def preset_object(preset: Preset) -> dict[str, Any]:
    """Return what `presets --json` prints of a preset."""
    return {
        "name": preset.name,
        "summary": preset.summary,
        "parameters": [
            {**asdict(parameter), "type": parameter.type.__name__}
            for parameter in preset.parameters
        ],
        "requires": [asdict(library) for library in preset.requires],
    }


def described(preset: Preset) -> str:
    """Return a preset and its parameters, for people."""
    width = max((len(parameter.name) for parameter in preset.parameters), default=0)
    lines = [f"{preset.name}: {preset.summary}", ""]
    for parameter in preset.parameters:
        lines.append(f"  {parameter.name:<{width}}  {parameter.help}")
        lines.append(f"  {'':<{width}}  {parameter.bounds}; default {_default(parameter)}")
    return "\n".join(lines)


def _default(parameter: Parameter) -> str:
    """Return the default, and the one on CPUs where that is another."""
    shown = "auto" if parameter.default is None else str(parameter.default)
    on_cpu = parameter.cpu_default
    return shown if on_cpu is None else f"{shown} on GPUs, {on_cpu} on CPUs"


def list_runs(as_json: bool) -> int:
    """Print every recorded run, the newest first."""
    from gputui.runs import recorded

    found = recorded()
    if as_json:
        print(json.dumps([asdict(record) for record in found], indent=1))
        return 0
    if not found:
        print("no run yet; gputui --run svd makes one", file=sys.stderr)
    for record in found:
        started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.started_at))
        elapsed = "-" if record.elapsed_s is None else f"{record.elapsed_s:.1f} s"
        print(f"{record.id:<36} {record.state:<10} {started} {elapsed:>10}  {record.error[:60]}")
    return 0


def show_run(id_: str, as_json: bool) -> int:
    """Print one run; raises UsageError when the id names none, or several."""
    from gputui.runs import find, text

    record = find(id_)
    if as_json:
        print(json.dumps(asdict(record), indent=1))
        return 0
    facts = {
        "id": record.id,
        "preset": record.preset,
        "parameters": ", ".join(f"{key}={value}" for key, value in record.parameters.items()),
        "state": str(record.state),
        "hosts": record.hosts or "this machine",
        "error": record.error or "-",
    }
    print(text(facts))
    if result := record.result.get("result"):
        print("\n" + text(result))
    return 0
