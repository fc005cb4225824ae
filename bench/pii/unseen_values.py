"""Values for the unseen texts: each function makes one value from a seeded `random.Random`."""

import string

SYLLABLES = {
    "slavic": (["Vol", "Kras", "Dubr", "Zhel", "Mik", "Brat", "Ostr", "Lub", "Stan", "Velk"], ["ov", "an", "im", "en", "ol"], ["ović", "ski", "enko", "ová", "czyk", "ev", "ák"]),
    "german": (["Brem", "Hol", "Wend", "Kraut", "Lind", "Stob", "Mahl", "Fink", "Greb", "Roth"], ["en", "er", "el", ""], ["mann", "hauer", "stein", "bauer", "wald", "kamp", "ing"]),
    "romance": (["Bel", "Cast", "Mor", "Val", "Sant", "Ferr", "Delg", "Cor", "Ric", "Aguil"], ["a", "e", "i", "o", "ar"], ["dini", "rez", "celli", "gnac", "tier", "ves", "monte", "letti"]),
    "nordic": (["Bjork", "Lind", "Hegg", "Sund", "Nyk", "Torv", "Vest", "Ekl", "Mork"], ["", "e", "a"], ["strøm", "gaard", "ström", "lund", "dahl", "berg", "vik", "nen"]),
    "asian": (["Tak", "Yos", "Nak", "Chan", "Ngu", "Hir", "Park", "Sung", "Wat", "Lian"], ["a", "i", "u", "e"], ["moto", "hara", "yama", "shita", "gawa", "wei", "min", "ra"]),
    "indian": (["Ram", "Venk", "Chatt", "Subr", "Prad", "Gov", "Mukh", "Bhatt"], ["a", "i", "an"], ["nathan", "murthy", "erjee", "charya", "kumar", "deep", "wal"]),
    "african": (["Ol", "Ad", "Nk", "Mb", "Ok", "Chid", "Tsh", "Amp"], ["a", "o", "u", "e"], ["wale", "fumi", "kosi", "onkwo", "badi", "mensah", "lela"]),
    "english": (["Ash", "Whit", "Thorn", "Hart", "Crad", "Pem", "Stan", "Wink", "Ells"], ["er", "ing", "en", ""], ["combe", "bury", "worth", "field", "ley", "wick", "thorpe", "ton"]),
}
GIVEN = """Aaliyah Mateo Ingrid Kwame Priya Haruto Zofia Luca Freya Omar Chiara Dmitri Ayşe Björn Siobhán Rafael Mei Tomasz Leila
Anders Camila Yusuf Petra Hiroshi Nadia Owen Beatriz Jakub Amara Sven Lucía Farid Eszter Giulia Pavel Noor Callum Ifeoma Matteo Saoirse
Ricardo Keiko Arjun Milena Ulrich Fatima Gustavo Elif Henrik Oluwaseun Marta Bogdan Aoife Javier Linh Stefan Deepa Emre Karin Thabo
Daniel Grace Martin Sophie Peter Laura Kevin Hannah Marcus Julia Brian Emma Victor Alice Simon Rachel Adam Nora Oscar Helen""".split()
FAMILY = """Papadopoulos Okafor Lindqvist Kowalczyk Hernández Nakamura O'Sullivan Fischer Dubois Moretti Ivanova Johansson Kaya
Santos Nguyen Patel Murphy Novák Horváth Andersen Virtanen Rossi Müller García Yılmaz Petrov Chen Kim Singh Mbeki Campbell Watson Bennett
Hughes Foster Brooks Morgan Bell Price Wood Long Ford Hill Marsh Stone Rivers Young Bishop Knight Page""".split()
CITIES = """Guimarães Szeged Tromsø Uppsala Ghent Padua Groningen Kassel Ostrava Plovdiv Izmir Kumasi Mysuru Sapporo Busan Cuenca
Valdivia Tampere Aarhus Limerick Dundee Swansea Halifax Saskatoon Tulsa Omaha Boise Fresno Toledo Akron Spokane Wichita Leeds Graz Lyon Bilbao
Kraków Porto Nairobi Pune Perth Leiden Turku Košice Bergen Malmö Poznań Zadar""".split()
COUNTRIES = """Portugal Hungary Norway Sweden Belgium Italy Slovakia Bulgaria Ghana India Japan Ecuador Chile Finland Denmark Ireland
Canada Austria Poland Kenya Vietnam Peru Morocco Estonia Uruguay Zambia Nepal Thailand""".split()
STATES = "Ohio,Nebraska,Idaho,Oklahoma,Wisconsin,Vermont,Bavaria,Ontario,Queensland,Saskatchewan,Catalonia,Tuscany,Oregon,New Mexico,South Dakota".split(",")
NATIONS = "Portuguese Hungarian Norwegian Ghanaian Vietnamese Peruvian Moroccan Estonian Nepali Bolivian Kenyan Irish Scottish Chilean Catholic Muslim Jewish Hindu Buddhist Lutheran Republican".split()
TRADES = "Logistics Robotics Textiles Foods Dental Timber Optics Travel Interiors Metals Packaging Catering Pharma Energy Software Insurance Motors Publishing Analytics".split()
COINED = "Zentrix Quorvia Bluefern Novalto Kestrel Pexora Arvindo Luminex Trevona Halcyra Ombrio Veltura Mirandex Fjordic Solvanta Tindra Okavia Brightloom Graniq Dorvane".split()
BODIES = ["University of {c}", "{c} University", "Bank of {c}", "{s} Foundation", "{c} General Hospital", "{s} Institute of Technology", "{c} City Council", "{s} Memorial Hospital", "Museum of {c}", "{c} Chamber of Commerce", "{c} School of Medicine", "Ministry of Health", "{s} & Sons", "{s} Brothers", "{c} Football Club"]
FORMS = "Ltd|Inc|LLC|GmbH|AG|S.p.A.|S.r.l.|B.V.|AB|Oy|A/S|ApS|PLC|SARL|SA|Pty Ltd|Corp|Sp. z o.o.|s.r.o.|Kft.|KG|GmbH & Co. KG|Inc.|Ltd.|L.L.C.|N.V.|AS|Group|Holdings|Partners|and Sons".split("|")


def surname(d):
    if d.random() < 0.5:
        return d.choice(FAMILY)
    head, mid, tail = SYLLABLES[d.choice(list(SYLLABLES))]
    return d.choice(head) + d.choice(mid) + d.choice(tail)


def given_name(d):
    if d.random() < 0.8:
        return d.choice(GIVEN)
    head, mid, _ = SYLLABLES[d.choice(list(SYLLABLES))]
    return d.choice(head) + d.choice(mid) + d.choice(["a", "o", "is", "ka", "el", "ina", "us"])


def person(d):
    f, l = given_name(d), surname(d)
    form = d.random()
    if form < 0.72:
        return f"{f} {l}"
    if form < 0.80:
        return f"{f} {d.choice(string.ascii_uppercase)}. {l}"
    if form < 0.87:
        return f"{f} {d.choice(['van der', 'de', 'von', 'da', 'el', 'di'])} {l}"
    if form < 0.94:
        return f"{f} {l}-{surname(d)}"
    return f"{f} {given_name(d)} {l}"


first, last = given_name, surname


def made_town(d):
    return surname(d).split("'")[-1][:6].rstrip("-") + d.choice(["ville", "burg", "stad", "ford", "ton", "heim", "field", "mouth", "by"])


def city(d):
    return d.choice(CITIES) if d.random() < 0.7 else made_town(d)


def country(d):
    return d.choice(COUNTRIES)


def state(d):
    return d.choice(STATES)


def nrp(d):
    return d.choice(NATIONS)


def org(d):
    s, kind = surname, d.random()
    if kind < 0.30:
        return f"{d.choice([s(d), s(d) + ' ' + d.choice(TRADES), d.choice(COINED), d.choice(COINED) + ' ' + d.choice(TRADES)])} {d.choice(FORMS)}"
    if kind < 0.42:
        return f"{s(d)}, {s(d)} and {s(d)}"
    if kind < 0.50:
        return f"{s(d)}-{s(d)}"
    if kind < 0.58:
        return f"{s(d)} & {s(d)}"
    if kind < 0.68:
        return f"{d.choice(COINED)} {d.choice(TRADES)}"
    if kind < 0.76:
        return d.choice(COINED)
    return d.choice(BODIES).format(c=city(d), s=s(d))


def n(d, count):
    return "".join(d.choice(string.digits) for _ in range(count))


def house(d):
    return str(d.randint(1, 240)) + d.choice(["", "", "", "a", "B"])


def us_street(d):
    name = d.choice([surname(d), d.choice(["Maple", "Oak", "Cedar", "Lake", "Mill", "Church", "Station", "Willow", "2nd", "45th"])])
    end = d.choice("Street,St,Avenue,Ave,Road,Rd,Lane,Drive,Dr.,Blvd,Court,Way,Circle,Terrace,Parkway,Place".split(","))
    unit = d.choice(["", "", f" Apt {d.randint(1, 99)}", f", Suite {d.randint(100, 999)}", f" Unit {d.randint(1, 30)}", f" #{d.randint(1, 40)}"])
    return f"{d.randint(1, 9999)} {d.choice(['', '', 'N ', 'West '])}{name} {end}{unit}"


def address(d):
    c, s = city(d), surname(d).split("'")[-1]
    us, u = d.choice(["OH", "NE", "TX", "CA", "NY", "WA", "FL"]), d.choice(string.ascii_uppercase)
    return d.choice([
        lambda: f"{us_street(d)}, {c}, {us} {n(d, 5)}",
        lambda: f"{us_street(d)}\n{c}, {us} {n(d, 5)}",
        lambda: f"{us_street(d)}",
        lambda: f"PO Box {d.randint(10, 9999)}, {c}, {us} {n(d, 5)}-{n(d, 4)}",
        lambda: f"{s}straße {house(d)}, {n(d, 5)} {c}",
        lambda: f"Am {s}platz {house(d)}, {n(d, 5)} {c}",
        lambda: f"{d.randint(1, 200)} rue {d.choice(['de ', 'du ', 'des ', ''])}{s}, 7{n(d, 4)} {c}",
        lambda: f"Calle {s} {house(d)}, {n(d, 5)} {c}",
        lambda: f"C/ {s}, {d.randint(1, 99)}, 2º {u}",
        lambda: f"Via {s} {house(d)}, {n(d, 5)} {c}",
        lambda: f"{s}straat {house(d)}, {d.randint(1000, 9999)} {u}{d.choice('BCDEG')} {c}",
        lambda: f"{s}gatan {house(d)}, {n(d, 3)} {n(d, 2)} {c}",
        lambda: f"ul. {s} {house(d)}, {n(d, 2)}-{n(d, 3)} {c}",
        lambda: f"Rua {s}, {house(d)}, {c}, {n(d, 5)}-{n(d, 3)}",
        lambda: f"{house(d)} {s} {d.choice(['Road', 'Lane', 'Close', 'Crescent', 'Gardens'])}, {c} {d.choice(['SW', 'M', 'LS', 'EH'])}{d.randint(1, 20)} {d.randint(1, 9)}{u if u not in 'CIKMOV' else 'B'}{d.choice('ABD')}",
        lambda: f"{d.randint(1, 999)} {s} Drive, {c}, ON {d.choice('KLMN')}{d.randint(1, 9)}{d.choice('ABCE')} {d.randint(1, 9)}{d.choice('ABCE')}{d.randint(1, 9)}",
        lambda: f"Flat {d.randint(1, 40)}, {d.randint(1, 200)} {s} Street, {c}",
    ])()


def luhn(body):
    total = sum(sum(divmod(int(x) * (2 if i % 2 == 0 else 1), 10)) for i, x in enumerate(reversed(body)))
    return body + str(-total % 10)


def card(d):
    prefix, size = d.choice([("4", 16), ("51", 16), ("55", 16), ("2223", 16), ("34", 15), ("37", 15), ("6011", 16), ("65", 16), ("3528", 16), ("36", 14), ("4", 13), ("62", 16), ("5018", 16)])
    number = luhn(prefix + n(d, size - len(prefix) - 1))
    if size == 16 and d.random() < 0.5:
        return d.choice([" ", "-"]).join(number[i:i + 4] for i in range(0, 16, 4))
    return number


def phone(d):
    a, b, c = str(d.randint(201, 989)), str(d.randint(200, 999)), n(d, 4)
    return d.choice([
        f"({a}) {b}-{c}", f"{a}-{b}-{c}", f"{a}.{b}.{c}", f"+1-{a}-{b}-{c}", f"+1 {a} {b} {c}", f"001-{a}-{b}-{c}x{n(d, 3)}", f"({a}){b}-{c} ext. {n(d, 3)}", f"{a}-{b}-{c}x{n(d, 4)}",
        f"+44 20 {n(d, 4)} {n(d, 4)}", f"+44 (0)1632 {n(d, 6)}", f"01632 {n(d, 6)}", f"07{n(d, 3)} {n(d, 6)}", f"+49 30 {n(d, 7)}", f"+49(0){d.randint(1000, 9999)} {n(d, 5)}", f"0{d.randint(30, 99)}/{n(d, 7)}",
        f"+33 6 {n(d, 2)} {n(d, 2)} {n(d, 2)} {n(d, 2)}", f"06 {n(d, 2)} {n(d, 2)} {n(d, 2)} {n(d, 2)}", f"+34 6{n(d, 2)} {n(d, 3)} {n(d, 3)}", f"+39 3{n(d, 2)} {n(d, 7)}", f"+48 {d.randint(500, 799)} {n(d, 3)} {n(d, 3)}",
        f"+46 (0)70 {n(d, 3)} {n(d, 2)} {n(d, 2)}", f"+31 6 {n(d, 8)}", f"+55 (11) 9{n(d, 4)}-{n(d, 4)}", f"+91 9{n(d, 4)} {n(d, 5)}", f"+81-3-{n(d, 4)}-{n(d, 4)}", f"+61 4{n(d, 2)} {n(d, 3)} {n(d, 3)}", f"+420 {d.randint(601, 799)} {n(d, 3)} {n(d, 3)}", f"+86 138 {n(d, 4)} {n(d, 4)}", f"+{d.choice(['372', '351', '353', '358'])}{n(d, 8)}",
    ])


MONTHS = "January February March April May June July August September October November December".split()


def date(d):
    y, m, day = d.randint(1935, 2025), d.randint(1, 12), d.randint(1, 28)
    name = MONTHS[m - 1]
    return d.choice([f"{day:02}/{m:02}/{y}", f"{m}/{day}/{y}", f"{y}-{m:02}-{day:02}", f"{day:02}.{m:02}.{y}", f"{name} {day}, {y}", f"{day} {name} {y}", f"{name[:3]} {day}, {y}", f"{day}-{name[:3]}-{y}", f"{day}th of {name} {y}" if day > 3 and day not in (21, 22, 23) else f"{day} {name} {y}", f"{day:02}-{m:02}-{y}"])


def slug(text):
    return "".join(c for c in text.lower() if c in string.ascii_lowercase)


def domain(d):
    return f"{slug(surname(d)) or 'mill'}{d.choice(['', '-' + slug(d.choice(TRADES))])}.{d.choice('com com org net de co.uk fr io it pl info nl eu se es com.br biz'.split())}"


def email(d):
    f, l = slug(given_name(d)) or "kim", slug(surname(d)) or "lee"
    return d.choice([f"{f}.{l}", f"{f[0]}{l}", f"{f}{d.randint(1, 99)}", f"{l}_{f}", f"{f}+{l}"]) + "@" + d.choice([domain(d), "gmail.com", "proton.me", f"mail.{domain(d)}", "company.museum"])


def url(d):
    return f"{d.choice(['https', 'http'])}://{d.choice(['', 'www.', 'my.'])}{domain(d)}{d.choice(['', '/', '/u/' + slug(surname(d)), '/p?id=' + n(d, 4)])}"


def ssn(d):
    area = d.choice([d.randint(1, 665), d.randint(667, 899)])
    return f"{area:03}-{d.randint(1, 99):02}-{d.randint(1, 9999):04}"


BBANS = {"DE": "18", "GB": "A4 14", "FR": "23", "ES": "20", "IT": "A1 22", "NL": "A4 10", "PL": "24", "SE": "20", "NO": "11", "DK": "14", "FI": "14", "AT": "16", "BE": "12", "CH": "17", "PT": "21", "CZ": "20", "HU": "24", "RO": "A4 16", "IE": "A4 14", "GR": "23", "TR": "22", "SA": "20", "AE": "19", "BR": "23A2", "MT": "A4 23", "LU": "16", "EE": "16", "HR": "17", "IL": "19", "LV": "A4 13"}


def iban(d):
    land = d.choice(list(BBANS))
    form, body = BBANS[land].replace(" ", ""), ""
    while form:
        if form[0] == "A":
            body += "".join(d.choice(string.ascii_uppercase) for _ in range(int(form[1])))
            form = form[2:]
        else:
            size = form.split("A")[0]
            body += n(d, int(size))
            form = form[len(size):]
    check = 98 - int("".join(str(int(c, 36)) for c in body + land + "00")) % 97
    code = f"{land}{check:02}{body}"
    return code if d.random() < 0.5 else " ".join(code[i:i + 4] for i in range(0, len(code), 4))


def licence(d):
    return d.choice([f"{d.choice(string.ascii_uppercase)}{n(d, 7)}", n(d, 8), f"{d.choice(string.ascii_uppercase)}{n(d, 12)}", n(d, 9)])


def passport(d):
    return d.choice([n(d, 9), d.choice("ABCEX") + n(d, 8), "C" + n(d, 4) + "FG" + n(d, 2)])


def ip(d):
    if d.random() < 0.7:
        return f"{d.choice([d.randint(11, 126), d.randint(128, 168), d.randint(173, 220)])}.{d.randint(1, 254)}.{d.randint(1, 254)}.{d.randint(1, 254)}"
    groups = [f"{d.randint(1, 65535):x}" for _ in range(6)]
    return d.choice(["2001:db8:" + ":".join(groups), "fd12:" + groups[0] + "::" + groups[1], "2a02:" + groups[0] + ":" + groups[1] + "::1"])


def mac(d):
    return d.choice([":", "-"]).join(f"{d.randint(1, 255):02x}" for _ in range(6))


def age(d):
    return f"{d.randint(19, 96)}{d.choice([' years old', '-year-old', ' year old', ' yo'])}"


def alnum(d, count, letters=string.ascii_letters + string.digits):
    return "".join(d.choice(letters) for _ in range(count))


def secret(d):
    upper, hexa = string.ascii_uppercase + "234567", "0123456789abcdef"
    return d.choice([
        "AKIA" + alnum(d, 16, upper), "ghp_" + alnum(d, 36), "github_pat_" + alnum(d, 22) + "_" + alnum(d, 59), "glpat-" + alnum(d, 20), "xoxb-" + n(d, 12) + "-" + n(d, 12) + "-" + alnum(d, 24),
        "sk_live_" + alnum(d, 24), "sk-proj-" + alnum(d, 48), "sk-ant-api03-" + alnum(d, 80), "hf_" + alnum(d, 34), "npm_" + alnum(d, 36), "SG." + alnum(d, 22) + "." + alnum(d, 43), "AIza" + alnum(d, 35), "dop_v1_" + alnum(d, 64, hexa), "shpat_" + alnum(d, 32, hexa), n(d, 10) + ":AA" + alnum(d, 33), "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiI" + alnum(d, 20) + "." + alnum(d, 43),
    ])


def password(d):
    return d.choice([alnum(d, 10), "Winter" + n(d, 4) + "!", alnum(d, 6) + d.choice("#$!@") + alnum(d, 4), "correct7horse" + n(d, 2)])


def account(d):
    return n(d, d.choice([8, 9, 10, 12]))


other = account


def routing(d):
    body = d.choice(["02", "11", "12", "26", "31"]) + n(d, 6)
    return body + str(-sum(int(x) * w for x, w in zip(body, [3, 7, 1] * 3)) % 10)


def vin(d):
    letters = "ABCDEFGHJKLMNPRSTUVWXYZ"
    weights = [8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2]
    worth = dict(zip(letters, [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 7, 9, 2, 3, 4, 5, 6, 7, 8, 9]))
    body = "1" + alnum(d, 3, letters) + n(d, 4) + "0" + alnum(d, 2, letters) + n(d, 6)
    rest = sum((int(c) if c.isdigit() else worth[c]) * w for c, w in zip(body, weights)) % 11
    return body[:8] + ("X" if rest == 10 else str(rest)) + body[9:]


def steuer_id(d):
    digits = list("0123456789")
    while True:
        body = d.sample(digits[1:], 1) + d.sample(digits, 9)
        if len(set(body)) == 9:
            break
    product = 10
    for x in body:
        total = (int(x) + product) % 10 or 10
        product = total * 2 % 11
    return "".join(body) + str((11 - product) % 10)


def cpf(d):
    body = [d.randint(0, 9) for _ in range(9)]
    for size in (10, 11):
        rest = sum(x * w for x, w in zip(body, range(size, 1, -1))) % 11
        body.append(0 if rest < 2 else 11 - rest)
    s = "".join(map(str, body))
    return f"{s[:3]}.{s[3:6]}.{s[6:9]}-{s[9:]}"


def nhs_number(d):
    while True:
        body = str(d.randint(4, 7)) + n(d, 8)
        check = 11 - sum(int(x) * w for x, w in zip(body, range(10, 1, -1))) % 11
        if check != 10:
            s = body + str(check % 11)
            return f"{s[:3]} {s[3:6]} {s[6:]}"


def dni(d):
    number = d.randint(10_000_000, 99_999_999)
    return f"{number}{'TRWAGMYFPDXBNJZSQVHLCKE'[number % 23]}"


def pesel(d):
    body = f"{d.randint(40, 99):02}{d.randint(1, 12):02}{d.randint(1, 28):02}{n(d, 4)}"
    return body + str(-sum(int(x) * w for x, w in zip(body, [1, 3, 7, 9] * 3)) % 10)


def bsn(d):
    while True:
        body = str(d.randint(1, 8)) + n(d, 7)
        rest = sum(int(x) * w for x, w in zip(body, range(9, 1, -1))) % 11
        if rest < 10:
            return body + str(rest)
