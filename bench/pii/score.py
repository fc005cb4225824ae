"""Scores spans against labels: per type span-exact, overlap and character-level recall, precision and F2, for each system
that was measured. Writes pii.json and pii.md.

    score.py WORK_FOLDER RESULTS_FOLDER BUILD
"""

import json
import pathlib
import re
import sys

from scoring import score, shown

folder, results = map(pathlib.Path, sys.argv[1:3])
build = sys.argv[3]
report = {"build": build, "note": "Presidio by its pattern recognisers alone: without a spaCy model it finds no names, places or organisations.", "sets": {}}
page = ["# Detection on labelled texts", "", report["note"], ""]
for name in ["small", "large", "unseen"]:
    source = folder / f"generated_{name}.json"
    if not source.exists():
        continue
    items = json.loads(source.read_text(encoding="utf-8"))
    LABELS = {s["entity_type"] for item in items for s in item["spans"]}
    systems = {}
    for system in ["interflow", "presidio"]:
        path = folder / f"{system}-{name}.json"
        if path.exists():
            told = json.loads(path.read_text(encoding="utf-8"))
            rows = {kind: shown(row) for kind, row in score(items, told["spans"]).items() if kind in LABELS or kind == "all"}
            systems[system] = {"seconds": round(told["seconds"], 4), "types": rows}
    report["sets"][name] = {"texts": len(items), "systems": systems}
    page += [f"## generated_{name}.json, {len(items)} texts", ""]
    head = "".join(f" {s}: exact | recall | chars | precision | F2 |" for s in systems)
    page += [f"| type | labels |{head}", "|---|---|" + "---|" * 5 * len(systems)]
    for kind in systems["interflow"]["types"]:
        cells = []
        for system in systems.values():
            row = system["types"].get(kind)
            keys = ["exact_recall", "recall", "char_recall", "precision", "f2"]
            cells += [f"{row[k]:.3f}" if row else "-" for k in keys]
        page.append(f"| {kind} | {systems['interflow']['types'][kind]['labels']} | " + " | ".join(cells) + " |")
    seconds = {s: v["seconds"] for s, v in systems.items()}
    if seconds.get("presidio") and seconds.get("interflow"):
        report["sets"][name]["times_faster"] = round(seconds["presidio"] / seconds["interflow"])
    times = ", ".join(f"{s} {v['seconds']:.3f} s" for s, v in systems.items())
    faster = f", {report['sets'][name]['times_faster']} times as fast" if "times_faster" in report["sets"][name] else ""
    page += ["", f"Processor time for all texts ({build} build): {times}{faster}.", ""]
speed = folder / "speed.json"
if speed.exists():
    report["speed"] = json.loads(speed.read_text(encoding="utf-8"))
    page += [f"## Speed of the default policy, one core, {build} build", "", "| text | MB/s |", "|---|---|"]
    page += [f"| {name} | {rate:.1f} |" for name, rate in report["speed"]["megabytes_per_second"].items()]
    page += ["", f"A prompt of 2 KB: {report['speed']['prompt_microseconds']:.1f} us. "
             f"A body of 64 KB with 49 of 50 turns seen before: {report['speed']['conversation_microseconds']:.0f} us.", ""]
def alarms(name):
    """Per 1,000 words of all texts, and for each file its words and alarms."""
    path = folder / name
    if not path.exists():
        return None
    told = path.read_text(encoding="utf-8")
    files = {pathlib.Path(f).stem: (int(words), int(hits)) for f, hits, words in re.findall(r"^(\S+): (\d+) in (\d+) words", told, re.M)}
    return float(re.search(r"^negatives: ([0-9.]+) false", told, re.M)[1]), files


known = alarms("negatives.txt")
if known:
    report["false_positives_per_1000_words"] = known[0]
    page += ["## Texts that hold nothing", "", f"{known[0]} false positives per 1,000 words of `bench/pii/negatives`.", ""]
unseen, baseline = alarms("negatives-unseen.txt"), alarms("negatives-unseen-baseline.txt")
if unseen:
    report["unseen_negatives"] = {"false_positives_per_1000_words": unseen[0]}
    if baseline:
        report["unseen_negatives"]["baseline_per_1000_words"] = baseline[0]
    report["unseen_negatives"]["texts"] = {
        name: {"words": words, "false_positives": hits} | ({"baseline": baseline[1][name][1]} if baseline else {})
        for name, (words, hits) in unseen[1].items()
    }
    before = f" (before the detectors were changed: {baseline[0]})" if baseline else ""
    page += [f"{unseen[0]} per 1,000 words of the generated texts of `bench/pii/unseen_negatives.py`{before}. Their shapes were seen when the detectors were changed, their values were not:", ""]
    page += ["| text | words | false positives |" + (" before |" if baseline else ""), "|---|---|---|" + ("---|" if baseline else "")]
    for name, (words, hits) in unseen[1].items():
        page.append(f"| {name.replace('_', ' ')} | {words} | {hits} |" + (f" {baseline[1][name][1]} |" if baseline else ""))
    page.append("")
results.mkdir(exist_ok=True)
(results / "pii.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
(results / "pii.md").write_text("\n".join(page).rstrip() + "\n", encoding="utf-8")
print("\n".join(page))
