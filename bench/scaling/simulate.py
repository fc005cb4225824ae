"""How a fleet grows beyond what one machine can measure: capacities from measured costs, and a simulation of its queues and of its spool.

    bench/scaling/simulate.py           # writes bench/results/scaling.json, and the tables of docs/operations/shared-store.md

Costs per request are read from bench/results/*.json. What is assumed rather than measured is in ASSUMED, and shown as such. The simulation has
a fixed seed: two runs give the same figures."""

import heapq
import json
import math
import os
import random
import statistics

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RESULTS = os.path.join(ROOT, "bench/results")
PAGE = os.path.join(ROOT, "docs/operations/shared-store.md")

ASSUMED = {
    "request and response, bytes": 10_240,
    "share of requests on a new TLS connection": 0.01,
    "cores of a replica's node": 8,
    "cores of a balancer's node": 8,
    "cores of the PostgreSQL primary": 32,
    "use of cores and network that is planned with": 0.5,
    "bytes that one PostgreSQL primary writes per second": 500e6,
    "bytes that one PostgreSQL primary keeps": 16e12,
    "WAL and indexes, times the bytes of a flow": 2.0,
    "network of a node, bits per second": 10e9,
    "retention, days": 7,
    "bytes of a flow in Parquet": 9000,
    "share of requests that are recorded": 1.0,
    "share of requests that Redis counts (those to LLMs)": 0.1,
    # Round figures of a public cloud on demand, in US dollars, November 2026; yours differ.
    "price of a core and 4 GiB, per hour": 0.045,
    "price of a GB on a database's disk, per month": 0.12,
    "price of a GB in a bucket, per month": 0.023,
}
RATES = [10**3, 10**5, 10**7]
HOURS = 730
REQUESTS = 400_000


def load(name):
    with open(os.path.join(RESULTS, f"{name}.json")) as f:
        return json.load(f)


def cpu(name, case, arm):
    """Median CPU per request in microseconds."""
    [row] = [r for c in load(name)["cases"] if c["name"] == case for r in c["rows"] if r["arm"] == arm]
    return statistics.median(r["cpu_us"] for r in row["runs"])


def costs():
    fleet = load("fleet-costs")
    return {
        "intercepted request of 8 KiB, us": (cpu("mitm", "TLS 8 KiB", "interflow"), "mitm.json, `TLS 8 KiB`, interflow"),
        "the same, recorded, us": (cpu("mitm", "TLS 8 KiB", "interflow+record"), "mitm.json, `TLS 8 KiB`, interflow+record"),
        "new TLS connection, us": (cpu("mitm", "TLS new connection", "interflow+record"), "mitm.json, `TLS new connection`, interflow+record"),
        "balancer, us": (cpu("forward", "tunnel 16 KiB", "haproxy-tcp"), "forward.json, `tunnel 16 KiB`, haproxy-tcp"),
        "Redis, us": (fleet["redis_cpu_us_per_request"], "fleet-costs.json"),
        "PostgreSQL, us per flow": (fleet["postgres_cpu_us_per_flow"], "fleet-costs.json"),
        "PostgreSQL, bytes per flow": (fleet["postgres_bytes_per_flow"], "fleet-costs.json"),
    }


class Fleet:
    """What a rate needs of each component, in units of the largest single one of it."""

    def __init__(self, rate, cost, bodies=True, recorded=None, days_in_database=None):
        a = ASSUMED
        recorded = a["share of requests that are recorded"] if recorded is None else recorded
        counted = a["share of requests that Redis counts (those to LLMs)"]
        days = a["retention, days"]
        us = lambda name: cost[name][0] / 1e6
        extra = us("the same, recorded, us") - us("intercepted request of 8 KiB, us")
        request = us("intercepted request of 8 KiB, us") + recorded * extra
        request += a["share of requests on a new TLS connection"] * us("new TLS connection, us")
        planned = a["use of cores and network that is planned with"]
        self.rate = rate
        self.replica_cores = rate * request / planned
        # In each direction: what a node receives it also sends.
        by_network = rate * a["request and response, bytes"] * 8 / planned / a["network of a node, bits per second"]
        self.replicas = max(2, math.ceil(max(self.replica_cores / a["cores of a replica's node"], by_network)) + 1)
        self.balancer_cores = rate * us("balancer, us") / planned
        self.balancers = max(2, math.ceil(max(self.balancer_cores / a["cores of a balancer's node"], by_network)) + 1)
        # Redis runs scripts on one core.
        self.redis = rate * counted * us("Redis, us") / planned
        flows = rate * recorded
        row = cost["PostgreSQL, bytes per flow"][0]
        row -= 0 if bodies else 8192
        by_cpu = flows * us("PostgreSQL, us per flow") / planned / a["cores of the PostgreSQL primary"]
        by_disk = flows * row * a["WAL and indexes, times the bytes of a flow"] / a["bytes that one PostgreSQL primary writes per second"]
        self.disk_bytes = flows * row * (days_in_database or days) * 86_400
        by_size = self.disk_bytes / a["bytes that one PostgreSQL primary keeps"]
        self.postgres, self.postgres_bound = max((by_cpu, "CPU"), (by_disk, "writes"), (by_size, "size"))
        self.bucket_bytes = flows * a["bytes of a flow in Parquet"] * days * 86_400 if days_in_database else 0

    def first_limit(self):
        """The component of which one is not enough, and cannot simply be added to: the most overcommitted one."""
        single = {"PostgreSQL": self.postgres, "Redis": self.redis}
        name, need = max(single.items(), key=lambda item: item[1])
        return (name, need) if need > 1 else (None, need)

    def postgres_cores(self):
        """Of all primaries: a small one has four."""
        largest = ASSUMED["cores of the PostgreSQL primary"]
        if self.postgres > 1:
            return math.ceil(self.postgres) * largest
        return min(largest, max(4, 2 ** math.ceil(math.log2(max(self.postgres * largest, 1))))) if self.postgres else 0

    def dollars(self):
        a = ASSUMED
        cores = (self.replicas * a["cores of a replica's node"] + self.balancers * a["cores of a balancer's node"] + 2 * math.ceil(self.redis)
                 + 2 * self.postgres_cores())
        return {
            "cores": cores * a["price of a core and 4 GiB, per hour"] * HOURS,
            "database disks": 2 * self.disk_bytes / 1e9 * a["price of a GB on a database's disk, per month"],
            "bucket": self.bucket_bytes / 1e9 * a["price of a GB in a bucket, per month"],
        }


def queue(cost, use, workers, shared):
    """Waiting times in microseconds of requests that come at random at this use of the cores. A connection stays at the worker (a thread with
    its own sockets) that accepted it, so a request waits for its worker even if others are idle; `shared` is one queue for all, for
    comparison. Service times: of 8 KiB recorded, exponential; some begin with a TLS handshake."""
    draw = random.Random(1)
    mean, handshake = cost["the same, recorded, us"][0], cost["new TLS connection, us"][0]
    share = ASSUMED["share of requests on a new TLS connection"]
    interval = (mean + share * handshake) / workers / use
    free = [0.0] * workers
    now, waits = 0.0, []
    for _ in range(REQUESTS):
        now += draw.expovariate(1 / interval)
        service = draw.expovariate(1 / mean) + (handshake if draw.random() < share else 0)
        if shared:
            start = max(now, heapq.heappop(free))
            heapq.heappush(free, start + service)
        else:
            worker = draw.randrange(workers)
            start = max(now, free[worker])
            free[worker] = start + service
        waits.append(start - now)
    waits.sort()
    return {p: round(waits[int(len(waits) * q)], 1) for p, q in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))}


def outage(rate, replicas, capacity, minutes, bytes_per_flow, spool):
    """PostgreSQL is gone for some minutes: second by second, what waits at each replica, and when everything is delivered again."""
    each, waiting, second, peak, full_after = rate / replicas, 0.0, 0, 0.0, None
    while second < minutes * 60 or waiting > 1:
        arrived = each
        if waiting * bytes_per_flow >= spool:
            # The policy decides: back-pressure or drop. Nothing more is recorded meanwhile.
            full_after = second if full_after is None else full_after
            arrived = 0 if second < minutes * 60 else min(each, capacity / replicas)
        waiting += arrived
        if second >= minutes * 60:
            waiting = max(0.0, waiting - capacity / replicas)
        peak = max(peak, waiting)
        second += 1
        if second > 30 * 86_400:
            return {"peak_bytes_per_replica": peak * bytes_per_flow, "full_after_s": full_after, "caught_up_after_s": None}
    return {"peak_bytes_per_replica": peak * bytes_per_flow, "full_after_s": full_after, "caught_up_after_s": second - minutes * 60}


def amount(value, units=("", " thousand", " million", " billion", " trillion")):
    index = 0
    while value >= 1000 and index < len(units) - 1:
        value, index = value / 1000, index + 1
    return f"{value:,.0f}{units[index]}" if value >= 10 or value == int(value) else f"{value:.1f}{units[index]}"


def size(value):
    return amount(value, (" B", " kB", " MB", " GB", " TB", " PB"))


def seconds(value):
    return "never" if value is None else f"{value} s" if value < 120 else f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def table(header, rows):
    return "\n".join(["| " + " | ".join(header) + " |", "|" + "---|" * len(header)] + ["| " + " | ".join(map(str, r)) + " |" for r in rows])


def rate(value):
    return {10**3: "10³/s", 10**5: "10⁵/s", 10**7: "10⁷/s"}[value]


def main():
    cost = costs()
    result = {"name": "scaling", "command": "bench/scaling/simulate.py", "assumed": ASSUMED,
              "costs": {k: {"value": round(v, 1), "from": f"bench/results/{source}"} for k, (v, source) in cost.items()}}
    text = {"costs": table(["cost", "measured", "from `bench/results/`"], [[k, f"{v:,.1f}", source] for k, (v, source) in cost.items()])}
    text["assumed"] = table(["assumption", "value"], [[k, f"{v:,g}" if v < 1000 else amount(v)] for k, v in ASSUMED.items()])

    plans = {"everything": {}, "one day, then Parquet": {"days_in_database": 1}, "without bodies": {"bodies": False}, "1 % of the requests": {"recorded": 0.01},
             "nothing": {"recorded": 0.0}}
    rows, money = [], []
    result["plans"] = {}
    for name, options in plans.items():
        for r in RATES:
            fleet = Fleet(r, cost, **options)
            limit, need = fleet.first_limit()
            dollars = fleet.dollars()
            result["plans"][f"{name}, {r}/s"] = {**{k: v for k, v in vars(fleet).items()}, "first_limit": limit, "dollars_per_month": dollars}
            needs = lambda n: f"{n:.2g}" if n < 1 else f"**{amount(math.ceil(n))}**"
            rows.append([name, rate(r), amount(fleet.replicas), amount(fleet.balancers), needs(fleet.redis),
                         needs(fleet.postgres) + (f" ({fleet.postgres_bound})" if fleet.postgres >= 1 else ""), size(fleet.disk_bytes),
                         size(fleet.bucket_bytes), limit or "nothing"])
            money.append([name, rate(r), *(f"${amount(v, ('', 'k', 'M', 'B'))}" for v in dollars.values())])
    text["plans"] = table(["recording", "rate", "replicas", "balancers", "Redis servers", "PostgreSQL primaries", "database", "bucket",
                           "breaks first"], rows)
    text["money"] = table(["recording", "rate", "cores per month", "database disks", "bucket"], money)

    workers = ASSUMED["cores of a replica's node"]
    result["queue"] = {}
    rows = []
    for use in (0.3, 0.5, 0.7, 0.85, 0.95):
        own, one = queue(cost, use, workers, False), queue(cost, use, workers, True)
        result["queue"][str(use)] = {"worker of the connection": own, "one queue": one}
        rows.append([f"{use:.0%}", *(f"{own[p]:,.0f} µs" for p in own), *(f"{one[p]:,.0f} µs" for p in one)])
    text["queue"] = table(["use of the cores", "p50", "p99", "p99.9", "one queue: p50", "p99", "p99.9"], rows)

    # Of one group: larger ones are more of it, each with a database of its own.
    rows, result["outage"] = [], {}
    flow = cost["PostgreSQL, bytes per flow"][0]
    capacity = ASSUMED["cores of the PostgreSQL primary"] * 1e6 / cost["PostgreSQL, us per flow"][0]
    capacity = min(capacity, ASSUMED["bytes that one PostgreSQL primary writes per second"] / flow / ASSUMED["WAL and indexes, times the bytes of a flow"])
    for r, minutes in ((1000, 10), (1000, 120), (10_000, 10), (10_000, 120), (20_000, 10)):
        replicas = Fleet(r, cost).replicas
        end = outage(r, replicas, capacity, minutes, flow, 10 * 2**30)
        result["outage"][f"{r}/s, {minutes} min"] = {"replicas": replicas, "capacity": round(capacity), **end}
        rows.append([f"{r:,}/s", replicas, f"{minutes} min", size(end["peak_bytes_per_replica"]), "no" if end["full_after_s"] is None else
                     f"after {seconds(end['full_after_s'])}", seconds(end["caught_up_after_s"])])
    text["outage"] = table(["flows", "replicas", "PostgreSQL is away", "waits at a replica", "spool of 10 GiB full", "delivered after"], rows)

    with open(os.path.join(RESULTS, "scaling.json"), "w") as f:
        json.dump(result, f, indent=2)
        f.write("\n")
    with open(PAGE) as f:
        page = f.read()
    for name, body in text.items():
        begin, end = f"<!-- {name}: written by bench/scaling/simulate.py -->\n", f"<!-- end of {name} -->"
        before, rest = page.split(begin)
        page = before + begin + "\n" + body + "\n\n" + end + rest.split(end, 1)[1]
    with open(PAGE, "w") as f:
        f.write(page)
    print(text["plans"], text["queue"], text["outage"], text["money"], sep="\n\n")


if __name__ == "__main__":
    main()
