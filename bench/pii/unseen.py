"""Writes labelled texts that no list was made from: seeded templates of several styles, filled with names put together
from syllables, streets and companies of many countries, and numbers whose check digits hold.

    unseen.py OUT.json [--texts N] [--seed N]
"""

import argparse
import json
import random
import re

import unseen_values as values
from unseen_templates import TEMPLATES

LABELS = {
    "person": "PERSON", "first": "PERSON", "last": "PERSON", "city": "LOCATION", "country": "LOCATION", "state": "LOCATION",
    "address": "ADDRESS", "org": "ORGANIZATION", "card": "CREDIT_CARD", "phone": "PHONE_NUMBER", "date": "DATE_TIME",
    "email": "EMAIL_ADDRESS", "ssn": "US_SSN", "iban": "IBAN_CODE", "domain": "DOMAIN_NAME", "url": "URL",
    "licence": "US_DRIVER_LICENSE", "ip": "IP_ADDRESS", "age": "AGE", "nrp": "NRP", "passport": "passport-number",
    "mac": "mac-address", "secret": "SECRET", "password": "SECRET", "vin": "vin", "coin": "COIN", "account": "bank-account",
    "routing": "bank-routing-number", "other": "none",
}


def fill(template, dice):
    text, spans, last_person = "", [], None
    for part in re.split(r"(\{\w+\})", template):
        if not re.fullmatch(r"\{\w+\}", part):
            text += part
            continue
        name = part[1:-1]
        if name == "again":
            value, label = last_person.split(" ")[0], "PERSON"
        else:
            value, label = getattr(values, name)(dice), LABELS.get(name, name.replace("_", "-"))
        if name == "person":
            last_person = value
        if label != "none":
            spans.append({"entity_type": label, "entity_value": value, "start_position": len(text), "end_position": len(text) + len(value)})
        text += value
    return {"full_text": text, "spans": spans}


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("out")
    arguments.add_argument("--texts", type=int, default=2000)
    arguments.add_argument("--seed", type=int, default=5)
    given = arguments.parse_args()
    dice = random.Random(given.seed)
    items = [fill(TEMPLATES[n % len(TEMPLATES)], dice) for n in range(given.texts)]
    with open(given.out, "w", encoding="utf-8") as out:
        json.dump(items, out, ensure_ascii=False)


main()
