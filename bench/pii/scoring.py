"""Recall, precision and F2 of spans against labels, per type: span-exact, by overlap and by character."""

# Which of a system's types count as having found a label.
PLACE = {"location", "street-address", "zip-code", "state-abbreviation", "LOCATION"}
COUNTS = {
    # Labels of persons may hold the title, and titles of their own are found as such or with the name.
    "PERSON": {"person", "title", "PERSON"},
    "PREFIX": {"person", "title", "PERSON"},
    "TITLE": {"person", "title", "PERSON"},
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
    labelled = {s["entity_type"] for item in items for s in item["spans"]}
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
            # A title stands for no name.
            home = right[0] if right else "TITLE" if name == "title" else next((k for k in COUNTS if name in COUNTS[k] and k in labelled), name)
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
