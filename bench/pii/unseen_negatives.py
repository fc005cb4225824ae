"""Writes texts full of numbers that are nobody's: logs, tables, invoices, code, dumps, catalogues and papers, filled from
a seed. Nothing in them is personal data, so every detection is a false alarm.

    unseen_negatives.py FOLDER [--each N] [--seed N]

writes a file for each kind of text with N of them.
"""

import argparse
import pathlib
import random

import unseen_negatives_records as records
import unseen_negatives_software as software

KINDS = {**software.KINDS, **records.KINDS}


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("--each", type=int, default=12)
    arguments.add_argument("--seed", type=int, default=11)
    given = arguments.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, write in KINDS.items():
        # A kind of its own seed: another kind more changes none of the others.
        dice = random.Random(f"{given.seed} {name}")
        text = "\n".join(write(dice) for _ in range(given.each))
        (given.folder / f"{name}.txt").write_text(text + "\n", encoding="utf-8")


main()
