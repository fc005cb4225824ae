"""Labelled sentences to train a small model of names with: names from the lexicon, names that a Markov chain makes up, and
sentences put together from clauses. Shares no template and no value with `unseen.py`, which is what the result is tested on.

    texts.py OUT.json [--texts N] [--seed N] [--plain FILE...]

`--plain` names files without personal data; their lines are added without labels.
"""

import argparse
import json
import pathlib
import random
import re

DATA = pathlib.Path(__file__).parents[3] / "crates/interflow-redact/data"

SENTENCES = """
{p} said the results were better than expected.
I spoke with {p} yesterday about the delay.
According to {p}, the meeting was moved to Thursday.
{p} joined {o} as head of sales in 2019.
{p}, who works for {o}, lives in {l}.
The patient, {p}, was admitted with chest pain and seen by Dr. {s}.
{p} was born in {l} and grew up near {l}.
My brother {f} is moving to {l} next month.
Our neighbour {p} lost her dog near the station.
{o} announced a new plant in {l}.
{o} and {o} signed a memorandum of understanding.
The takeover of {o} by {o} was approved by the court.
Shares in {o} fell by four percent after the report.
She resigned from {o} after a dispute with {p}.
The lawsuit against {o} was filed in {l}.
We fly from {l} to {l} on Friday morning.
The weather in {l} is mild in spring.
They opened a branch in {l}, {r}.
He emigrated from {r} to {r} in the nineties.
The train to {l} leaves at nine.
Please ship the parcel to {a}, {l}.
Our office is at {a}, {l}, {r}.
The accident happened at {a} around noon.
{p} lives at {a} with two children.
Invoice for {p}, {a}, {l}
Attendees: {p}, {p}, {p} and {p}
From: {p}
To: {p} <info@example.com>
cc {f} and {f}
Best wishes,
{f}
Kind regards, {p}, {o}
Dear {f}, thank you for your letter.
Hello {p}, your order has been shipped.
hi {f}, are you coming tonight?
Mr. {s} and Mrs. {s} declined to comment.
Prof. {p} teaches physics in {l}.
Captain {s} ordered the crew to wait.
{f} told me that {f} had left {o}.
ask {p} whether the contract with {o} is signed
can you call {f} back before six
{p} ({o}) wrote the first draft.
The report by {s} and {s} covers three years.
{s} et al. describe a faster method.
Witness {p} saw the car turn into {a}.
The tenant of {a} is {p}.
The band played in {l}, {l} and {l}.
Our supplier {o} raised prices again.
The auditors of {o} found nothing unusual.
He banks with {o} and insures with {o}.
{o} hired {p} from {o}.
A spokesman for {o} said the plant in {l} stays open.
The mayor of {l}, {p}, opened the bridge.
{r} and {r} agreed on a new border.
In {r}, the rule applies to companies such as {o}.
name: {p}
employee = "{p}"
"customer": "{p}", "city": "{l}"
"company": "{o}", "country": "{r}"
| {p} | {o} | {l} |
{p};{l};{o};active
assigned to {f} {s} on Monday
author {p} committed a fix
Signed-off-by: {p} <dev@example.org>
Reviewed-by: {p}
the estate of {p} was sold to {p}
What did {p} mean when he said that {l} was cheap?
Write a letter to {o} in {l} and complain about the bill.
Summarise the career of {p}, founder of {o}.
Translate: {p} wohnt in {l} und arbeitet bei {o}.
{p} habite à {l} et travaille chez {o}.
{p} vive en {l} y trabaja para {o}.
Sehr geehrte Frau {s}, vielen Dank.
Chère Madame {s}, merci pour votre message.
Estimado señor {s}, gracias por su carta.
Liebe {f}, bis morgen in {l}!
i met {f} {s} in {l} last summer
my doctor is {s} and my dentist is {p}
the flight of {p} from {l} was cancelled
tell {f} that {o} called
{p} paid {p} forty dollars for the bike.
The defendant, {p}, pleaded not guilty before Judge {s}.
{f} and {f} got engaged in {l}.
Emergency contact: {p} (sister), {l}
{p} is allergic to penicillin.
The property at {a}, {l} belongs to {o}.
Directions from {a} to {a}
We bought it at {o} in {l}.
Apply at {o}, {a}, {l}.
{o} is looking for a nurse in {l}.
{p} retired after thirty years at {o}.
Have you read the book by {p}?
The {o} warehouse in {l} burned down.
I was treated badly by {o} staff in {l}.
{l}-based {o} makes valves.
The {l} office reports to {p}.
{p}'s account was closed by mistake.
{o}'s profit doubled.
{l}'s harbour was enlarged.
"""

NOTHING = """
The function returns an empty list when the input is missing.
Restart the server after changing the configuration file.
Please explain how a hash table handles collisions.
Write a short poem about autumn leaves and rain.
What is the difference between a process and a thread?
The quarterly report shows higher costs for energy.
Summer sales begin on Monday and end in July.
Add two cups of flour and a pinch of salt.
Error: connection refused while reading the response header
The Build step failed because the Test job timed out.
Open Settings, choose Network, and press Apply.
Monday, Tuesday and Friday are fine for me.
Good morning everyone, and welcome to the Annual Review.
The Board met on 3 March to discuss the Budget.
Draft a job advertisement for a senior accountant.
Convert 15 miles to kilometres and show the steps.
SELECT id, total FROM orders WHERE status = 'open'
for i in range(10): print(i)
let Result = match value { Some(x) => x, None => return };
Our team needs a new printer before the end of May.
Translate the following sentence into English.
My password does not work any more, what can I do?
The Python interpreter and the Rust compiler are installed.
Use Docker or Kubernetes to run the service.
He said nothing and left the room.
She is my favourite teacher and a good friend.
The Doctor will see you now.
Is It Safe To Eat Raw Eggs?
Chapter Two: The Long Way Home
Thank you, Sir. I will call again tomorrow.
Version 2.1 fixes the bug in the Parser.
HTTP Request Headers And Their Meaning
Dear Sir or Madam, I would like to cancel my subscription.
My Mother and my Father live far away.
The Spring Framework uses dependency injection.
Create a Meeting Agenda with five points.
The invoice {i} of {d} over {n} EUR was paid on {d}.
Order {i} contains {n} pieces at {n} each.
{d} {n}:{n}:{n} ERROR worker-{n} failed after {n} ms, retry {n}
{d} INFO request {i} finished with status {n}
GET /api/{w}/{i}?page={n}&limit={n} HTTP/1.1
"{w}": {n}, "{w}": "{i}", "{w}": true
const {w} = {w}({n}, {n});
self.{w}.{w} = {w}[{n}] + {n}
{w}: {w}
{w}; {n}; {i}; {w}
Contact: {e}, phone {t}, reference {i}
Call {t} or write to {e} before {d}.
Card {t} expires in {d}.
The account {i} has a balance of {n}.{n}.
Table {n}: values of {w} and {w} in percent ({n}, {n}, {n})
In {d} the {w} rose by {n} percent, the {w} fell by {n}.
The {w} of the {w} is {n} metres long and weighs {n} kg.
A {w} is a {w} with a {w}.
How does a {w} {w} work? Explain the {w} in {n} sentences.
- {W} {W}
{W} {W} {W}: a {w} for {w}
The {W} is closed. The {W} is open.
see section {n}.{n} and figure {n}
x = {n} * y + {n}
"""

SUFFIX = ["Ltd", "GmbH", "Inc.", "LLC", "AG", "S.A.", "PLC", "Corp.", "BV", "Group", "Holdings", "Partners"]
TRADE = ["Bank", "Insurance", "Foods", "Logistics", "Motors", "Systems", "Energy", "Pharma", "Airlines", "Media", "Steel",
         "Consulting", "Software", "Textiles", "University", "Hospital", "Clinic", "Institute", "Foundation", "Museum",
         "Labs", "Robotics", "Shipping", "Telecom", "Construction", "Capital", "Brewery", "Optics", "Chemicals"]
STREET = ["Street", "Road", "Avenue", "Lane", "Drive", "Way", "Court", "Close", "Boulevard", "Square", "Terrace"]
REPLACED = {"p": "PER", "f": "PER", "s": "PER", "l": "LOC", "r": "LOC", "o": "ORG", "a": "ADDR"}


def words(name):
    return [w for w in (DATA / name).read_text(encoding="utf-8").split("\n") if len(w) > 2 and not w.startswith("#")]


class Chain:
    """Made-up words that look like those of a list."""

    def __init__(self, source):
        self.next = {}
        for word in source:
            word = f"^^^{word.lower()}$"
            for at in range(len(word) - 3):
                self.next.setdefault(word[at:at + 3], []).append(word[at + 3])

    def word(self, dice):
        while True:
            text = "^^^"
            while text[-1] != "$" and len(text) < 16:
                text += dice.choice(self.next[text[-3:]])
            if text[-1] == "$" and len(text) > 7:
                return text[3:-1].title()


class Values:
    def __init__(self, dice):
        self.dice = dice
        self.first, self.last = words("first_names.txt"), words("surnames.txt")
        self.first_top, self.last_top = words("first_names_top.txt"), words("surnames_top.txt")
        self.places, self.regions = words("places.txt"), words("regions.txt")
        self.orgs, self.english = words("orgs.txt"), words("words.txt")
        self.firsts, self.lasts, self.towns = Chain(self.first), Chain(self.last), Chain(self.places)

    def pick(self, *choices):
        return self.dice.choice(choices)()

    def known(self, source):
        return self.dice.choice(source).split("\t")[0].strip().title()

    def f(self):
        return self.pick(lambda: self.known(self.first), lambda: self.known(self.first_top), lambda: self.firsts.word(self.dice))

    def s(self):
        return self.pick(lambda: self.known(self.last), lambda: self.known(self.last_top), lambda: self.lasts.word(self.dice))

    def p(self):
        form = self.dice.random()
        if form < 0.70:
            return f"{self.f()} {self.s()}"
        if form < 0.78:
            return f"{self.f()} {self.dice.choice('ABCDEFGHJKLMPRST')}. {self.s()}"
        if form < 0.83:
            return f"{self.f()} {self.s()}-{self.s()}"
        if form < 0.87:
            return f"{self.f()} {self.dice.choice(['van', 'de', 'von', 'al', 'da', 'bin'])} {self.s()}"
        if form < 0.92:
            return f"{self.s()}, {self.f()}"
        return self.pick(self.f, self.s)

    def l(self):
        return self.pick(lambda: self.known(self.places), lambda: self.known(self.places), lambda: self.towns.word(self.dice))

    def r(self):
        return self.known(self.regions)

    def o(self):
        made = self.pick(self.s, lambda: self.towns.word(self.dice), lambda: self.known(self.english), lambda: self.known(self.places))
        form = self.dice.random()
        if form < 0.25:
            return f"{made} {self.dice.choice(TRADE)}"
        if form < 0.40:
            return f"{made} {self.dice.choice(SUFFIX)}"
        if form < 0.50:
            return f"{made} {self.dice.choice(TRADE)} {self.dice.choice(SUFFIX)}"
        if form < 0.57:
            return f"{made} & {self.s()}"
        if form < 0.63:
            return f"{self.dice.choice(['Bank', 'University', 'City', 'Museum'])} of {self.known(self.places)}"
        if form < 0.78:
            return self.known(self.orgs)
        return f"{made[:6]}{self.dice.choice(['ix', 'ora', 'tech', 'ly', 'io', 'soft', 'ex', 'via', ''])}"

    def w(self):
        return self.dice.choice(self.english).lower()

    def W(self):
        return self.w().title()

    def n(self):
        return str(self.dice.randint(0, 10 ** self.dice.randint(1, 6)))

    def i(self):
        letters = "ABCDEFGHJKLMNPRSTUVWXYZ0123456789-"
        return "".join(self.dice.choice(letters) for _ in range(self.dice.randint(5, 14)))

    def d(self):
        day, month, year = self.dice.randint(1, 28), self.dice.randint(1, 12), self.dice.randint(1950, 2030)
        names = "January February March April May June July August September October November December".split()
        return self.dice.choice([f"{year}-{month:02}-{day:02}", f"{day} {names[month - 1]} {year}", f"{month}/{day}/{year}", str(year)])

    def e(self):
        return f"{self.w()}.{self.i().lower().strip('-')}@{self.w()}.{self.dice.choice(['com', 'org', 'net', 'de'])}"

    def t(self):
        return "".join(self.dice.choice("0123456789 ") for _ in range(self.dice.randint(9, 16))).strip()

    def a(self):
        number = f"{self.dice.randint(1, 9999)}"
        name = self.pick(self.s, lambda: self.known(self.english), lambda: self.known(self.places))
        form = self.dice.random()
        if form < 0.6:
            return f"{number} {name} {self.dice.choice(STREET)}"
        if form < 0.8:
            return f"{name}{self.dice.choice(['straße', 'weg', 'allee', 'gasse'])} {number[:3]}"
        return f"{self.dice.choice(['rue', 'calle', 'via', 'avenida'])} {name} {number[:3]}"


def fill(template, values):
    text, spans = "", []
    for part in re.split(r"(\{\w\})", template):
        kind = REPLACED.get(part[1:-1])
        if not re.fullmatch(r"\{\w\}", part):
            text += part
            continue
        value = getattr(values, part[1])()
        if kind:
            spans.append([kind, len(text), len(text) + len(value)])
        text += value
    return text, spans


def one(dice, values, sentences, nothing):
    text, spans = "", []
    for _ in range(dice.choice([1, 1, 1, 2, 2, 3])):
        more, found = fill(dice.choice(nothing if dice.random() < 0.4 else sentences), values)
        spans += [[kind, a + len(text), b + len(text)] for kind, a, b in found]
        text += more + dice.choice([" ", " ", "\n"])
    return {"text": text.rstrip(), "spans": spans}


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("out")
    arguments.add_argument("--texts", type=int, default=30000)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--plain", nargs="*", default=[])
    given = arguments.parse_args()
    dice = random.Random(given.seed)
    values = Values(dice)
    lines = [[line for line in text.split("\n") if line] for text in (SENTENCES, NOTHING)]
    items = [one(dice, values, *lines) for _ in range(given.texts)]
    for path in given.plain:
        text = pathlib.Path(path).read_text(encoding="utf-8", errors="ignore")
        items += [{"text": line.strip(), "spans": []} for line in text.split("\n") if 30 < len(line) < 300]
    dice.shuffle(items)
    pathlib.Path(given.out).write_text(json.dumps(items, ensure_ascii=False), encoding="utf-8")


main()
