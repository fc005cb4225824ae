"""Numbers of goods, books, measurements and money that belong to no person. Each function returns one text."""

from unseen_negatives_software import lines

GOODS = ["hex bolt", "ball valve", "gasket set", "shim ring", "dowel pin", "cable gland", "drip tray", "fan belt", "pipe clamp"]


def grouped(number, sep):
    return f"{number:,}".replace(",", sep)


def weighted(digits, weights, modulus):
    return sum(int(d) * w for d, w in zip(digits, weights)) % modulus


def digits(dice, count):
    return "".join(str(dice.randint(0, 9)) for _ in range(count))


def ean(dice, head="40"):
    body = head + digits(dice, 12 - len(head))
    return body + str(-weighted(body, [1, 3] * 6, 10) % 10)


def isbn10(dice):
    body = digits(dice, 9)
    check = (11 - weighted(body, range(10, 1, -1), 11)) % 11
    return f"{body[0]}-{body[1:4]}-{body[4:]}-{'X' if check == 10 else check}"


def invoice(dice):
    rows = lines(dice, 8, lambda n: f"{n + 1:>3}  {dice.randint(10**6, 10**8)}  {dice.choice(GOODS):<14} {dice.randint(1, 500):>4} x {dice.uniform(0.1, 900):>8.2f}  {dice.uniform(1, 99999):>10,.2f}")
    return (f"Invoice no. {dice.randint(10**7, 10**9)}   Order {dice.randint(100, 999)}-{dice.randint(10**6, 10**7 - 1)}-{dice.randint(10**6, 10**7 - 1)}\n"
            f"Delivery note {dice.randint(10**9, 10**10)}, customer reference PO-{dice.randint(2020, 2026)}-{dice.randint(1000, 99999)}\n{rows}\n"
            f"Subtotal {dice.uniform(100, 99999):,.2f}   VAT 19 % {dice.uniform(10, 9999):,.2f}   Total {dice.uniform(100, 99999):,.2f}\n"
            f"Please quote {dice.randint(10**9, 10**10)} with your payment. Terms: 30 days, 2 % within 10.\n")


def part_catalogue(dice):
    return lines(dice, 10, lambda n: dice.choice([
        f"P/N {dice.randint(200, 999)}-{dice.randint(200, 999)}-{dice.randint(1000, 9999)}  {dice.choice(GOODS)}, pack of {dice.randint(2, 50)}",
        f"Drawing {dice.randint(200, 999)}.{dice.randint(200, 999)}.{dice.randint(1000, 9999)} rev {dice.choice('ABCDEF')}, sheet {dice.randint(1, 9)} of {dice.randint(1, 9)}",
        f"Item {dice.randint(200, 999)} {dice.randint(200, 999)} {dice.randint(1000, 9999)}: {dice.choice(GOODS)} M{dice.randint(3, 24)}x{dice.randint(1, 3)}.{dice.randint(0, 75)}",
        f"Spare kit 0{dice.randint(200, 999)} {dice.randint(100, 999)} {dice.randint(100, 999)} fits models {dice.randint(1000, 9999)} to {dice.randint(1000, 9999)}",
        f"S/N {digits(dice, 4)}-{digits(dice, 4)}-{digits(dice, 4)}-{digits(dice, 4)}, lot {dice.randint(10**5, 10**8)}",
        f"Article {dice.randint(10, 99)}.{dice.randint(100, 999)}.{dice.randint(10, 99)}-{dice.randint(1, 9)} supersedes {dice.randint(10, 99)}.{dice.randint(100, 999)}.{dice.randint(10, 99)}",
        f"Bearing {dice.randint(6000, 6999)}-2RS, torque {dice.uniform(1, 99):.1f} Nm, stock {dice.randint(0, 9999)}, bin {dice.randint(1, 99):02}-{dice.randint(1, 99):02}-{dice.randint(1, 99):02}",
    ])) + "\n"


def trade_numbers(dice):
    container = "".join(dice.choice("ABCDEFGHJKLM") for _ in range(3)) + "U"
    return lines(dice, 9, lambda n: dice.choice([
        f"ISBN {isbn10(dice)}, {dice.randint(60, 900)} pages",
        f"ISBN-13: 978-{dice.randint(0, 9)}-{digits(dice, 4)}-{digits(dice, 4)}-{dice.randint(0, 9)}",
        f"EAN {ean(dice)}  {dice.choice(GOODS)}",
        f"GTIN-14 1{ean(dice)}",
        f"ISSN {digits(dice, 4)}-{digits(dice, 4)}, volume {dice.randint(1, 99)}, article {dice.randint(1000, 999999)}",
        f"SSCC 0034{digits(dice, 14)} on pallet {dice.randint(1, 40)}",
        f"container {container}{digits(dice, 6)}-{dice.randint(0, 9)}, seal {digits(dice, 7)}",
        f"HS code {dice.randint(1000, 9999)}.{dice.randint(10, 99)}.{dice.randint(10, 99)}, duty {dice.uniform(0, 12):.1f} %",
        f"CAS {dice.randint(50, 99999)}-{dice.randint(10, 99)}-{dice.randint(0, 9)}, UN {dice.randint(1000, 3500)}, EC {dice.randint(200, 299)}-{dice.randint(100, 999)}-{dice.randint(0, 9)}",
        f"patent application {dice.randint(10, 17)}/{dice.randint(100, 999)},{dice.randint(100, 999)}; publication {dice.randint(2019, 2026)}/{digits(dice, 7)}",
        f"DIN EN {dice.randint(1000, 99999)}-{dice.randint(1, 9)}:{dice.randint(2001, 2024)}-{dice.randint(1, 12):02}, ISO {dice.randint(1000, 99999)}-{dice.randint(1, 20)}",
    ])) + "\n"


def csv_sums(dice):
    rows = lines(dice, 10, lambda n: ",".join([f"{dice.choice('KLMN')}{dice.randint(1, 9)}", str(dice.randint(10**6, 10**10)), f"{dice.uniform(0, 99999):.2f}", str(dice.randint(0, 10**6)), f"{dice.uniform(-50, 50):.1f}"]))
    german = lines(dice, 5, lambda n: ";".join([grouped(dice.randint(10**4, 10**9), ".") + f",{dice.randint(0, 99):02}", grouped(dice.randint(10**6, 10**10), " "), str(dice.randint(10**8, 10**9))]))
    return f"cell,counter,amount,pulses,delta\n{rows}\nTOTAL,{dice.randint(10**9, 10**11)},{dice.uniform(0, 10**6):.2f},{dice.randint(10**6, 10**8)},\n{german}\n"


def financial_table(dice):
    row = lambda name: f"{name:<28}" + "".join(f"{('(' + grouped(dice.randint(100, 10**7), ',') + ')') if dice.random() < 0.3 else grouped(dice.randint(100, 10**8), ','):>16}" for _ in range(4))
    rows = "\n".join(row(name) for name in ["Net sales", "Cost of goods", "Depreciation", "Inventories", "Trade payables", "Free cash flow"])
    ledger = lines(dice, 5, lambda n: f"{dice.randint(400000, 899999)}  {dice.choice(['Freight in', 'Scrap', 'Energy', 'Rent', 'Tooling'])}  debit {grouped(dice.randint(10**3, 10**8), ' ')}  GL account {dice.randint(100000, 999999)}")
    return f"in thousands{'2022':>30}{'2023':>16}{'2024':>16}{'2025':>16}\n{rows}\n{ledger}\nDiluted shares {grouped(dice.randint(10**8, 10**10), ',')}; ratio {dice.uniform(0, 9):.2f}x; {dice.randint(1, 99)} basis points\n"


def measurements(dice):
    return lines(dice, 9, lambda n: dice.choice([
        f"Sample {dice.randint(100, 999)}-{dice.randint(10, 99)}: {dice.uniform(1, 400):.1f} mg/L, pH {dice.uniform(4, 9):.2f}, {dice.randint(10, 40)} °C, {dice.randint(980, 1040)} hPa",
        f"Run {dice.randint(1000, 99999)}: {dice.uniform(1, 9):.4f} ± {dice.uniform(0, 1):.4f} mm over {dice.randint(10**6, 10**9)} cycles",
        f"Station {dice.randint(10000, 99999)}: wind {dice.randint(0, 359)}° at {dice.uniform(0, 30):.1f} m/s, gust {dice.uniform(0, 50):.1f}, rain {dice.uniform(0, 60):.1f} mm",
        f"Reading {dice.randint(10**5, 10**7)}.{dice.randint(0, 999):03} kWh, previous {dice.randint(10**5, 10**7)}.{dice.randint(0, 999):03}, meter constant {dice.randint(100, 999)}",
        f"{dice.randint(800, 4000)} x {dice.randint(600, 3000)} x {dice.randint(10, 90)} mm, {dice.uniform(1, 90):.1f} kg, {dice.randint(100, 240)} V, {dice.uniform(1, 16):.1f} A",
        f"Tolerance 0.0{digits(dice, 3)} / -0.0{digits(dice, 3)}; Ra {dice.uniform(0.1, 6):.2f}; batch {dice.randint(10**7, 10**9)}",
        f"{digits(dice, 3)} {digits(dice, 3)} {digits(dice, 4)} counts in channel {dice.randint(1, 4096)}, live time {dice.uniform(10, 9999):.2f} s",
    ])) + "\n"


def coordinates(dice):
    x, y = dice.uniform(-60, 60), dice.uniform(-150, 150)
    ring = ", ".join(f"[{y + dice.uniform(-1, 1):.6f}, {x + dice.uniform(-1, 1):.6f}]" for _ in range(6))
    grid = lines(dice, 6, lambda n: f"{n + 1:>4} {dice.randint(100000, 899999)}.{digits(dice, 3)} {dice.randint(1000000, 9999999)}.{digits(dice, 3)} {dice.uniform(0, 900):.3f}")
    stars = lines(dice, 4, lambda n: f"{dice.randint(0, 23):02} {dice.randint(0, 59):02} {dice.uniform(0, 59.9):05.2f}  {dice.choice('+-')}{dice.randint(0, 89):02} {dice.randint(0, 59):02} {dice.uniform(0, 59.9):04.1f}  {dice.uniform(1, 20):.2f}")
    return f"{{\"type\": \"Polygon\", \"coordinates\": [[{ring}]]}}\npoint easting northing height\n{grid}\nRA dec mag\n{stars}\nmesh vertex v {dice.uniform(-9, 9):.6f} {dice.uniform(-9, 9):.6f} {dice.uniform(-9, 9):.6f}\n"


def paper(dice):
    return (f"The effect was small (t({dice.randint(10, 400)}) = {dice.uniform(0, 5):.2f}, p = .{digits(dice, 3)}, 95 % CI {dice.uniform(0, 1):.2f} to {dice.uniform(1, 2):.2f}) in n = {dice.randint(20, 9999)} plots. "
            f"Reads mapped to chr{dice.randint(1, 22)}:{dice.randint(10**6, 10**8)}-{dice.randint(10**6, 10**8)} carry rs{dice.randint(10**5, 10**9)} and NM_{digits(dice, 6)}.{dice.randint(1, 9)}; the assembly is GCF_{digits(dice, 9)}.{dice.randint(1, 9)}. "
            f"We fitted {dice.randint(10**5, 10**7)} parameters to {grouped(dice.randint(10**6, 10**10), ' ')} tokens at a rate of {dice.uniform(1, 9):.1f}e-{dice.randint(2, 9)}, which took {dice.randint(100, 9999)} hours. "
            f"Grant {dice.randint(100, 999)}-{dice.randint(10, 99)}-{dice.randint(1000, 9999)} paid for the beam time (proposal {dice.randint(10**5, 10**7)}). doi 10.{dice.randint(1000, 9999)}/j.{digits(dice, 4)}-{digits(dice, 4)}.{dice.randint(2001, 2025)}.{digits(dice, 5)}.x "
            f"The half-life is {dice.uniform(1, 99):.3f}({dice.randint(1, 99)}) ms, and the line lies at {dice.randint(100, 999)}.{digits(dice, 4)} nm, {dice.randint(10**4, 10**5)}.{digits(dice, 2)} per cm. Table {dice.randint(1, 9)} lists {dice.randint(100, 999)} of {dice.randint(1000, 9999)} spectra.\n")


def rules_and_forms(dice):
    return lines(dice, 8, lambda n: dice.choice([
        f"See section {dice.randint(1, 30)}.{dice.randint(1, 30)}.{dice.randint(1, 30)}, paragraph {dice.randint(1, 99)}({dice.randint(1, 9)}), and clause {dice.randint(1, 99)}-{dice.randint(100, 999)}.",
        f"{dice.randint(10, 50)} CFR {dice.randint(100, 999)}.{dice.randint(100, 999)} applies above {grouped(dice.randint(10**3, 10**7), ',')} units.",
        f"Form {dice.randint(1000, 9999)}-{dice.choice('ABX')} (rev. {dice.randint(1, 12)}-{dice.randint(10, 25)}), OMB {dice.randint(1000, 3000)}-{digits(dice, 4)}, catalog {digits(dice, 5)}{dice.choice('QWXZ')}.",
        f"Docket {dice.randint(10, 25)}-cv-{digits(dice, 5)}, exhibit {dice.randint(1, 400)}, page {dice.randint(1, 9999)} of {dice.randint(1, 9999)}.",
        f"Ticket {dice.randint(10**5, 10**8)} was split into {dice.randint(10**5, 10**8)} and {dice.randint(10**5, 10**8)}; change CHG{digits(dice, 7)}.",
        f"Tariff {digits(dice, 4)} {digits(dice, 2)} {digits(dice, 2)} {digits(dice, 2)}: {dice.uniform(0, 20):.1f} % and {dice.uniform(0, 9):.2f} per 100 kg.",
        f"Call number QA{dice.randint(10, 99)}.{dice.randint(10, 99)} .{dice.choice('BCD')}{digits(dice, 3)} {dice.randint(1980, 2025)}, barcode 3{digits(dice, 13)}.",
        f"Load case {dice.randint(1, 99)}: {dice.randint(100, 999)}-{dice.randint(100, 999)}-{dice.randint(1000, 9999)} kN, {dice.randint(100, 999)} load steps, office copy {dice.randint(1, 9)}.",
    ])) + "\n"


def timetables(dice):
    table = lines(dice, 6, lambda n: f"Line {dice.randint(1, 99):>3}  " + "  ".join(f"{dice.randint(4, 23):02}:{dice.randint(0, 59):02}" for _ in range(8)))
    results = lines(dice, 6, lambda n: f"{n + 1}. lane {dice.randint(1, 8)}  {dice.randint(1, 2)}:{dice.randint(10, 59)}.{digits(dice, 2)}  {dice.uniform(20, 40):.2f}  {dice.randint(500, 999)} pts")
    draw = " ".join(str(dice.randint(1, 49)) for _ in range(7))
    chess = f"{dice.randint(1000, 2800)} {dice.randint(1000, 2800)} {dice.randint(1000, 2800)} {dice.randint(1000, 2800)}"
    return f"{table}\n{results}\nDraw {dice.randint(1000, 9999)}: {draw}; joker {digits(dice, 7)}; ratings {chess}\n"


KINDS = {f.__name__: f for f in [invoice, part_catalogue, trade_numbers, csv_sums, financial_table, measurements, coordinates,
                                 paper, rules_and_forms, timetables]}
