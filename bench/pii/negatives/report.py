"""Builds a weekly report from the events table."""

from __future__ import annotations

import argparse
import csv
import json
import logging
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

log = logging.getLogger(__name__)

VERSION = "3.11.4"
CHUNK_SIZE = 64 * 1024
STATUS_CODES = {200: "OK", 301: "Moved Permanently", 404: "Not Found", 503: "Service Unavailable"}


@dataclass
class Report:
    title: str
    rows: list[dict] = field(default_factory=list)
    totals: Counter = field(default_factory=Counter)

    def add(self, kind: str, amount: float = 1.0) -> None:
        self.totals[kind] += amount

    @property
    def mean(self) -> float:
        return sum(self.totals.values()) / max(len(self.totals), 1)


def load(path: Path) -> list[dict]:
    with path.open(newline="", encoding="utf-8") as handle:
        return [row for row in csv.DictReader(handle) if row.get("state") != "deleted"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--since", help="first day, as YYYY-MM-DD")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    logging.basicConfig(level=logging.DEBUG if options.verbose else logging.INFO)
    groups = defaultdict(list)
    for row in load(options.input):
        groups[row["kind"]].append(float(row["value"]))
    for name, values in sorted(groups.items()):
        log.info("%-20s %6d %10.3f", name, len(values), sum(values) / len(values))
    print(json.dumps({name: len(values) for name, values in groups.items()}, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
