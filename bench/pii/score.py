"""Scores spans against labels: per type span-exact, overlap and character-level recall, precision and F2, for each system
that was measured. Writes pii.json and pii.md.

    score.py WORK_FOLDER RESULTS_FOLDER BUILD
"""

import json
import pathlib
import re
import sys

# Which of a system's types count as having found a label.
PLACE = {"location", "street-address", "zip-code", "state-abbreviation", "LOCATION"}
COUNTS = {
    "PERSON": {"person", "PERSON"},
    "PREFIX": {"person", "PERSON"},
    "TITLE": {"person", "PERSON"},
    "LOCATION": PLACE,
    "GPE": PLACE,
    "ADDRESS": PLACE,
    "STREET_ADDRESS": PLACE,
    "ZIP_CODE": PLACE,
    "ORGANIZATION": {"organization", "ORGANIZATION"},
    "CREDIT_CARD": {"credit-card", "CREDIT_CARD"},
    "PHONE_NUMBER": {"phone-number", "PHONE_NUMBER"},
    "DATE_TIME": {"date", "DATE_TIME"},
    "EMAIL_ADDRESS": {"email-address", "EMAIL_ADDRESS"},
    "US_SSN": {"ssn", "itin", "US_SSN", "US_ITIN"},
    "IBAN_CODE": {"iban-code", "IBAN_CODE"},
    "DOMAIN_NAME": {"url", "domain", "URL"},
    "URL": {"url", "domain", "URL"},
    "US_DRIVER_LICENSE": {"drivers-license-number", "US_DRIVER_LICENSE"},
    "IP_ADDRESS": {"ip-address", "IP_ADDRESS"},
    "AGE": {"age", "AGE"},
    "NRP": {"nationality", "NRP"},
    "SECRET": {"api-key", "cloud-credential", "token", "jwt", "private-key", "connection-string", "password", "secret"},
    "passport-number": {"passport-number", "US_PASSPORT"},
    "mac-address": {"mac-address", "MAC_ADDRESS"},
    "bank-account": {"bank-account", "US_BANK_NUMBER"},
    "bank-routing-number": {"bank-routing-number", "ABA_ROUTING_NUMBER"},
    "nhs-number": {"nhs-number", "UK_NHS"},
}


def ratio(a, b):
    return a / b if b else 0.0


def f2(precision, recall):
    return 5 * precision * recall / (4 * precision + recall) if precision + recall else 0.0


def score(items, spans):
    types = {}

    def of(name):
        return types.setdefault(name, dict.fromkeys(["labels", "exact", "overlap", "chars", "covered", "found", "right"], 0))

    for item, found in zip(items, spans, strict=True):
        covered = {at for _, start, end in found for at in range(start, end)}
        labels = [(s["entity_type"], s["start_position"], s["end_position"]) for s in item["spans"]]
        for kind, start, end in labels:
            same = [(a, b) for name, a, b in found if name in COUNTS.get(kind, {kind})]
            row = of(kind)
            row["labels"] += 1
            row["exact"] += (start, end) in same
            row["overlap"] += any(a < end and start < b for a, b in same)
            row["chars"] += end - start
            row["covered"] += len(covered.intersection(range(start, end)))
        for name, a, b in found:
            near = [kind for kind, start, end in labels if a < end and start < b]
            right = [kind for kind in near if name in COUNTS.get(kind, {kind})]
            # What was found and is right counts for the label it met; what is not, for the label its name stands for.
            home = right[0] if right else next((k for k in COUNTS if name in COUNTS[k] and k in LABELS), name)
            row = of(home)
            row["found"] += 1
            row["right"] += bool(right)
    total = {key: sum(row[key] for row in types.values()) for key in of("PERSON")}
    return {**dict(sorted(types.items())), "all": total}


def shown(row):
    recall, precision = ratio(row["overlap"], row["labels"]), ratio(row["right"], row["found"])
    return {
        "labels": row["labels"],
        "exact_recall": round(ratio(row["exact"], row["labels"]), 4),
        "recall": round(recall, 4),
        "char_recall": round(ratio(row["covered"], row["chars"]), 4),
        "precision": round(precision, 4),
        "f2": round(f2(precision, recall), 4),
    }


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
negatives = folder / "negatives.txt"
if negatives.exists():
    told = re.search(r"^negatives: ([0-9.]+) false", negatives.read_text(encoding="utf-8"), re.M)
    report["false_positives_per_1000_words"] = float(told[1])
    page += ["## Texts that hold nothing", "", f"{told[1]} false positives per 1,000 words of `bench/pii/negatives`.", ""]
results.mkdir(exist_ok=True)
(results / "pii.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
(results / "pii.md").write_text("\n".join(page).rstrip() + "\n", encoding="utf-8")
print("\n".join(page))
