"""Puts the measurements of a model beside the rules alone into one file: recall, precision and F2 per type that a model of
names can find, and what it costs.

    measure.py SETS_FOLDER RUNS_FOLDER OUT.json NOTE

SETS_FOLDER holds SET.json with labelled texts, RUNS_FOLDER a folder MODEL/SET for each model and set, as the example `ner`
writes it.
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from scoring import score, shown  # noqa: E402

NAMES = ["PERSON", "LOCATION", "GPE", "ORGANIZATION", "ADDRESS", "STREET_ADDRESS", "all"]


def system(items, path):
    rows = score(items, json.loads(path.read_text(encoding="utf-8")))
    return {kind: shown(rows[kind]) for kind in NAMES if kind in rows}


def rounded(value):
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return round(value, 3) if isinstance(value, float) else value


sets, runs, out = map(pathlib.Path, sys.argv[1:4])
report = {"note": sys.argv[4], "sets": {}, "cost": {}}
for run in sorted(runs.glob("*/*")):
    items = json.loads((sets / f"{run.name}.json").read_text(encoding="utf-8"))
    systems = report["sets"].setdefault(run.name, {"texts": len(items), "systems": {}})["systems"]
    systems["rules"] = system(items, run / "rules.json")
    for name in ("model", "weighed"):
        systems[f"{run.parent.name}, {'alone' if name == 'model' else 'weighed with the rules'}"] = system(items, run / f"{name}.json")
    cost = json.loads((run / "cost.json").read_text(encoding="utf-8"))
    report["cost"].setdefault(run.parent.name, {})[run.name] = rounded(cost)
out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
for name, one in report["sets"].items():
    print(f"\n{name}: {one['texts']} texts")
    for system_name, rows in one["systems"].items():
        told = "  ".join(f"{kind} R {r['recall']:.3f} P {r['precision']:.3f} F2 {r['f2']:.3f}" for kind, r in rows.items())
        print(f"  {system_name:40} {told}")
