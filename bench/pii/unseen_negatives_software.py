"""Numbers that programs write: logs, traces, dumps, metrics, code, versions. Each function returns one text."""

import hashlib
import uuid


def lines(dice, count, line):
    return "\n".join(line(n) for n in range(count))


def hexes(dice, length):
    return "".join(dice.choice("0123456789abcdef") for _ in range(length))


def stamp(dice):
    return f"2025-{dice.randint(1, 12):02}-{dice.randint(1, 28):02}T{dice.randint(0, 23):02}:{dice.randint(0, 59):02}:{dice.randint(0, 59):02}"


def version(dice):
    return f"{dice.randint(0, 9)}.{dice.randint(0, 40)}.{dice.randint(0, 99)}"


def application_log(dice):
    words = ["flushed", "compacted", "replayed", "enqueued", "expired", "resized", "merged"]
    things = ["segment", "shard", "cursor", "lease", "partition", "snapshot", "batch"]
    return lines(dice, 14, lambda n: dice.choice([
        f"{stamp(dice)}.{dice.randint(0, 999):03}Z INFO  [worker-{dice.randint(1, 32)}] {dice.choice(words)} {dice.choice(things)} {dice.randint(10**5, 10**10)} in {dice.uniform(0.1, 900):.3f} ms",
        f"{stamp(dice)}Z WARN  queue depth {dice.randint(100, 99999)} exceeds {dice.randint(100, 99999)}; offset={dice.randint(10**8, 10**12)} lag={dice.randint(1, 10**6)}",
        f"{dice.randint(1, 31):02}/{dice.randint(1, 12):02}/2025 {dice.randint(0, 23):02}:{dice.randint(0, 59):02}:{dice.randint(0, 59):02} ERROR retry {dice.randint(1, 9)}/9 for job {dice.randint(10**8, 10**9)}, code {dice.randint(100, 599)}-{dice.randint(10, 99)}-{dice.randint(1000, 9999)}",
        f"I{dice.randint(1, 12):02}{dice.randint(1, 28):02} {dice.randint(0, 23):02}:{dice.randint(0, 59):02}:{dice.randint(0, 59):02}.{dice.randint(0, 999999):06} {dice.randint(1000, 99999):>7} reconciler.go:{dice.randint(10, 999)}] generation {dice.randint(10**6, 10**9)} observed",
        f"[{dice.randint(1, 99999):>5}.{dice.randint(0, 999999):06}] nvme{dice.randint(0, 3)}n1: p{dice.randint(1, 9)} blocks {dice.randint(10**8, 10**10)} {dice.randint(10**8, 10**10)}",
    ]))


def unix_tools(dice):
    meminfo = lines(dice, 6, lambda n: f"{dice.choice(['MemFree', 'Buffers', 'Cached', 'Dirty', 'Slab', 'Mapped', 'Shmem'])}:  {dice.randint(1000, 99999999):>12} kB")
    df = lines(dice, 5, lambda n: f"/dev/sd{dice.choice('abcd')}{dice.randint(1, 9)}  {dice.randint(10**7, 10**9):>10} {dice.randint(10**6, 10**8):>9} {dice.randint(10**6, 10**8):>9}  {dice.randint(1, 99)}% /mnt/d{n}")
    pci = lines(dice, 4, lambda n: f"{dice.randint(0, 99):02}:{dice.randint(0, 31):02x}.{dice.randint(0, 7)} Class {hexes(dice, 4)}: {hexes(dice, 4)}:{hexes(dice, 4)} (rev {dice.randint(0, 99):02})")
    vmstat = lines(dice, 5, lambda n: "  ".join(str(dice.randint(0, 10 ** dice.randint(1, 8))) for _ in range(12)))
    return f"$ head -6 /proc/meminfo\n{meminfo}\n$ df\n{df}\n$ lspci -n\n{pci}\n$ vmstat 1 5\n{vmstat}\n"


def versions(dice):
    names = ["quartz-ring", "tidepool", "hexlate", "ostler", "brindle", "mossgate", "farrow", "kelpie"]
    lock = lines(dice, 8, lambda n: f"{dice.choice(names)} = {{ version = \"{version(dice)}.{dice.randint(1, 99)}\", rev = \"{hexes(dice, 8)}\" }}")
    wheels = lines(dice, 4, lambda n: f"{dice.choice(names)}-{version(dice)}.{dice.randint(100, 999)}-cp3{dice.randint(8, 13)}-manylinux_2_{dice.randint(17, 39)}.whl  sha256:{hexes(dice, 64)}")
    notes = f"Firmware {dice.randint(1, 9)}.{dice.randint(0, 9)}.{dice.randint(0, 255)}.{dice.randint(0, 255)} replaces build {dice.randint(10**7, 10**9)}; driver {version(dice)}.{dice.randint(1000, 9999)} or later is needed. ABI {dice.randint(1, 9)}-{dice.randint(100, 999)}-{dice.randint(1000, 9999)}."
    return f"{lock}\n{wheels}\n{notes}\n"


def hashes(dice):
    digest = lambda name: getattr(hashlib, name)(str(dice.random()).encode()).hexdigest()
    unique = lambda: str(uuid.UUID(int=dice.getrandbits(128), version=4))
    return lines(dice, 8, lambda n: dice.choice([
        f"{digest('md5')}  part-{dice.randint(0, 99999):05}.bin",
        f"{digest('sha1')} *layer_{n}.tar",
        f"SHA256 (image.{dice.randint(1, 99)}) = {digest('sha256')}",
        f"object {unique()} has etag \"{digest('md5')}-{dice.randint(1, 40)}\"",
        f"trace {hexes(dice, 32)} span {hexes(dice, 16)} parent {dice.randint(10**17, 10**18)}",
        f"snowflake {dice.randint(10**17, 10**18)}, ulid 01{''.join(dice.choice('0123456789ABCDEFGHJKMNPQRSTVWXYZ') for _ in range(24))}",
    ])) + "\n"


def hex_dump(dice):
    pairs = lambda n: " ".join(f"{dice.randint(0, 255):02x}" for _ in range(n))
    xxd = lines(dice, 8, lambda n: f"{n * 16:08x}: {' '.join(hexes(dice, 4) for _ in range(8))}  ................")
    hexdump = lines(dice, 6, lambda n: f"{n * 16:08x}  {pairs(8)}  {pairs(8)}")
    can = lines(dice, 5, lambda n: f"({dice.randint(1000, 9999)}.{dice.randint(0, 999999):06}) can0 {dice.randint(0x100, 0x7FF):03X} [8] {pairs(8).upper()}")
    decimal = lines(dice, 4, lambda n: " ".join(f"{dice.randint(0, 255):3}" for _ in range(16)))
    return f"{xxd}\n{hexdump}\n{can}\n{decimal}\n"


def git_output(dice):
    log = lines(dice, 5, lambda n: f"{hexes(dice, dice.choice([7, 9, 10, 12]))} {dice.choice(['codec', 'parser', 'cache', 'ring'])}: {dice.choice(['bound the queue at', 'lower the limit to', 'wait at most', 'read ahead by'])} {dice.randint(10, 99999)}")
    hunk = f"index {hexes(dice, 7)}..{hexes(dice, 7)} 100644\n@@ -{dice.randint(1, 999)},{dice.randint(1, 99)} +{dice.randint(1, 999)},{dice.randint(1, 99)} @@\n-const LIMIT: u64 = {dice.randint(10**8, 10**10)};\n+const LIMIT: u64 = {dice.randint(10**8, 10**10)};"
    stat = lines(dice, 4, lambda n: f" src/ring_{n}.rs | {dice.randint(1, 999)} {'+' * dice.randint(1, 9)}{'-' * dice.randint(1, 9)}")
    return f"{log}\n{hunk}\n{stat}\n {dice.randint(2, 20)} files changed, {dice.randint(10, 9999)} insertions(+), {dice.randint(10, 9999)} deletions(-)\nWriting objects: 100% ({dice.randint(10, 999)}/{dice.randint(10, 999)}), {dice.uniform(1, 99):.2f} KiB | {dice.uniform(1, 9):.2f} MiB/s, done.\n"


def test_output(dice):
    passed = lines(dice, 7, lambda n: f"test ring::wraps_at_{dice.randint(10, 65536)} ... ok <{dice.uniform(0, 9):.3f}s>")
    wrong = f"assertion `left == right` failed\n  left: {dice.randint(10**8, 10**11)}\n right: {dice.randint(10**8, 10**11)}"
    seeds = f"proptest: seed {dice.randint(10**17, 10**19)}, {dice.randint(100, 9999)} cases, shrunk {dice.randint(1, 99)} times\ntests/ring.py::test_offsets[{dice.randint(100, 999)}-{dice.randint(100, 999)}-{dice.randint(1000, 9999)}] PASSED [ {dice.randint(1, 99)}%]\n= {dice.randint(100, 9999)} passed, {dice.randint(1, 99)} skipped in {dice.uniform(1, 999):.2f}s ="
    return f"{passed}\n{wrong}\n{seeds}\n"


def stack_trace(dice):
    frames = lines(dice, 7, lambda n: f"#{n}  0x{hexes(dice, 16)} in ring_push+0x{hexes(dice, 3)} (/lib/libring.so.{dice.randint(1, 9)}+0x{hexes(dice, 5)}) ring.c:{dice.randint(10, 4000)}")
    regs = "  ".join(f"r{n}={dice.randint(10**9, 2**63)}" for n in range(8))
    return f"SIGSEGV at 0x{hexes(dice, 12)}, pid {dice.randint(100, 4194304)}, tid {dice.randint(100, 4194304)}\n{frames}\n{regs}\nmap {hexes(dice, 12)}-{hexes(dice, 12)} r-xp {hexes(dice, 8)} 08:{dice.randint(10, 99)} {dice.randint(10**6, 10**8)}\n"


def sql_dump(dice):
    rows = lines(dice, 8, lambda n: f"INSERT INTO stock_level VALUES ({dice.randint(10**8, 10**10)},{dice.randint(10**5, 10**7)},'{dice.choice(['A', 'B', 'Q'])}{dice.randint(10, 99)}-{dice.randint(100, 999)}-{dice.randint(1000, 9999)}',{dice.uniform(1, 99999):.4f},{dice.randint(10**12, 2 * 10**12)},NULL);")
    copy = lines(dice, 6, lambda n: "\t".join([str(dice.randint(10**8, 10**10)), f"{dice.uniform(1, 999):.2f}", str(dice.randint(10**9, 2 * 10**9)), "\\N", str(dice.randint(1, 9)) * 3]))
    plan = f"Index Scan using stock_level_pkey on stock_level  (cost=0.{dice.randint(10, 99)}..{dice.randint(100, 99999)}.{dice.randint(10, 99)} rows={dice.randint(10**5, 10**8)} width={dice.randint(8, 200)}) (actual time=0.{dice.randint(100, 999)}..{dice.randint(1, 999)}.{dice.randint(100, 999)} rows={dice.randint(10**5, 10**8)} loops=1)"
    return f"{rows}\nCOPY reading FROM stdin;\n{copy}\n\\.\n{plan}\nSELECT pg_catalog.setval('stock_level_seq', {dice.randint(10**8, 10**10)}, true);\n"


def json_metrics(dice):
    point = lambda: f"{{\"ts\": {dice.randint(1_700_000_000, 1_790_000_000)}, \"ts_ms\": {dice.randint(1_700_000_000_000, 1_790_000_000_000)}, \"value\": {dice.randint(10**8, 10**11)}, \"p99\": {dice.uniform(0, 99999):.6f}, \"count\": {dice.randint(10**6, 10**10)}}}"
    buckets = ", ".join(str(dice.randint(0, 10 ** dice.randint(1, 10))) for _ in range(14))
    return f"{{\"shard\": \"{dice.randint(100, 999)}-{dice.randint(100, 999)}-{dice.randint(1000, 9999)}\", \"series\": [{', '.join(point() for _ in range(4))}], \"buckets\": [{buckets}], \"seq\": \"{dice.randint(10**9, 10**10)}\", \"offset\": \"{dice.randint(10**11, 10**15)}\"}}\n"


def prometheus(dice):
    names = ["ring_bytes_total", "ring_slots", "lease_renewals_total", "gc_pause_seconds_sum", "page_faults_total"]
    return lines(dice, 10, lambda n: f"{dice.choice(names)}{{shard=\"{dice.randint(1, 999)}\",zone=\"z{dice.randint(1, 4)}\",le=\"{dice.choice(['0.005', '0.25', '2.5', '+Inf'])}\"}} {dice.randint(10**6, 10**12)} {dice.randint(1_700_000_000_000, 1_790_000_000_000)}") + "\n"


def constants(dice):
    table = ",\n    ".join(", ".join(str(dice.randint(10**8, 2**32)) for _ in range(6)) for _ in range(4))
    floats = ", ".join(f"{dice.uniform(-1, 1):.9f}" for _ in range(10))
    return (f"static const uint32_t ROUND[] = {{\n    {table}\n}};\n"
            f"MASK = 0x{hexes(dice, 8)}; PRIME = {dice.randint(10**9, 10**10)}; SEED = {dice.randint(10**15, 10**18)}\n"
            f"weights = np.array([{floats}])\n"
            f"let epoch = {dice.randint(10**9, 2 * 10**9)}; let span = {dice.randint(1, 9)}_{dice.randint(100, 999)}_{dice.randint(100, 999)}_{dice.randint(100, 999)}u64;\n"
            f"assert_eq!(checksum(&page), {dice.randint(10**9, 2**32)}); // was {dice.randint(10**9, 2**32)}\n"
            f"#define BAUD {dice.choice([9600, 57600, 115200, 921600])}\n#define REG_CTRL 0x{hexes(dice, 4)}_{hexes(dice, 4)}\n"
            f"if (n % {dice.randint(10**8, 10**9)} == {dice.randint(10**7, 10**8)}) return {dice.randint(-10**9, -10**8)};\n")


def machine_code(dice):
    gcode = lines(dice, 6, lambda n: f"G1 X{dice.uniform(0, 220):.3f} Y{dice.uniform(0, 220):.3f} Z{dice.uniform(0, 9):.2f} E{dice.uniform(0, 9):.5f} F{dice.randint(600, 9000)}")
    nmea = lines(dice, 3, lambda n: f"$PGRME,{dice.uniform(1, 30):.1f},M,{dice.uniform(1, 30):.1f},M*{hexes(dice, 2).upper()}")
    modbus = lines(dice, 4, lambda n: f"holding register {dice.randint(40001, 49999)} = {dice.randint(0, 65535)} (0x{dice.randint(0, 65535):04X}), unit {dice.randint(1, 247)}")
    return f"{gcode}\n{nmea}\n{modbus}\n"


KINDS = {f.__name__: f for f in [application_log, unix_tools, versions, hashes, hex_dump, git_output, test_output, stack_trace,
                                 sql_dump, json_metrics, prometheus, constants, machine_code]}
