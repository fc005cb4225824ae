"""Many viewers of one live stream through the gateway: one request upstream per segment, memory per viewer, and whether it stays flat.

  viewers.py BINARY [--viewers 1000] [--minutes 0.5] [--slow 0.05] [--write FILE]

An origin whose playlist moves a segment every two seconds; each viewer keeps a connection, reads the playlist as players do and every new segment
once. Some are slow: they take their segment in small sips. Counts what the origin was asked, and the process's memory (PSS, without what it
shares) before, with all viewers, and at the end. Fails when a segment was fetched twice, a byte was wrong, or, in
four minutes or more, memory grew.
"""

import argparse
import asyncio
import collections
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time

SECONDS, SIZE, WINDOW = 2.0, 200_000, 6
BLOCK = hashlib.sha256(b"interflow").digest() * (SIZE // 32)


class Origin:
    def __init__(self):
        self.began, self.asked, self.playlists = time.monotonic(), collections.Counter(), 0

    def segment(self, number):
        return b"%016d" % number + BLOCK[: SIZE - 16]

    async def serve(self, reader, writer):
        try:
            while line := await reader.readline():
                while (await reader.readline()).strip():
                    pass
                path = line.split()[1].decode()
                if path == "/m.m3u8":
                    self.playlists += 1
                    last = int((time.monotonic() - self.began) / SECONDS) + WINDOW
                    text = f"#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:{last - WINDOW}\n"
                    text += "".join(f"#EXTINF:2,\ns{n}.ts\n" for n in range(last - WINDOW, last))
                    body, kind = text.encode(), "application/vnd.apple.mpegurl"
                else:
                    self.asked[path] += 1
                    body, kind = self.segment(int(re.search(r"\d+", path)[0])), "video/mp2t"
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (kind.encode(), len(body)))
                writer.write(body)
                await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


class Viewer:
    def __init__(self, port, url, origin, slow):
        self.port, self.url, self.origin, self.slow = port, url, origin, slow
        self.seen, self.wrong, self.last = 0, [], -1

    async def get(self, path, slow=False):
        self.writer.write(b"GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % (path.encode(), self.port))
        head = await self.reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            self.wrong.append(head[:60].decode())
        length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
        if not slow:
            return await self.reader.readexactly(length)
        parts = []
        while length:
            part = await self.reader.read(min(length, 8192))
            parts.append(part)
            length -= len(part)
            # As fast as it plays, more or less: what is read ahead is little.
            await asyncio.sleep(SECONDS * 0.8 * len(part) / SIZE)
        return b"".join(parts)

    async def watch(self, until):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 14)
        while time.monotonic() < until:
            text = (await self.get(self.url)).decode()
            front = f"http://127.0.0.1:{self.port}"
            addresses = [l.removeprefix(front) for l in text.splitlines() if l and not l.startswith("#")]
            first = int(re.search(r"MEDIA-SEQUENCE:(\d+)", text)[1])
            # Players begin three segments before the end.
            if self.last < 0:
                self.last = first + len(addresses) - 4
            for number, address in enumerate(addresses, first):
                if number > self.last:
                    body = await self.get(address, self.slow)
                    if body != self.origin.segment(number):
                        self.wrong.append(f"segment {number} is not what it should be")
                    self.last, self.seen = number, self.seen + 1
            await asyncio.sleep(SECONDS * 0.9)


def memory(pid):
    """Private and shared-out memory in KiB."""
    for line in open(f"/proc/{pid}/smaps_rollup"):
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def cpu(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start(binary, home):
    config = os.path.join(home, "c.toml")
    with open(config, "w") as f:
        f.write('[media]\nallow_private = ["127.0.0.0/8"]\n')
    log = open(os.path.join(home, "log"), "w+")
    command = [binary, "run", "--no-record", "-c", config] + [w for p in ("proxy", "gateway", "admin") for w in (f"--listen-{p}", "127.0.0.1:0")]
    process = subprocess.Popen(command, env={**os.environ, "INTERFLOW_DATA_DIR": home}, stdout=log, stderr=log)
    for _ in range(600):
        try:
            instance = json.load(open(os.path.join(home, "instance.json")))
            return process, int(instance["gateway"].rsplit(":", 1)[1])
        except (OSError, ValueError):
            time.sleep(0.05)
    sys.exit("the gateway does not start")


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--viewers", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=0.5)
    parser.add_argument("--slow", type=float, default=0.05, help="which part of the viewers is slow")
    parser.add_argument("--write", help="where the result goes, as JSON")
    asked = parser.parse_args()
    origin = Origin()
    server = await asyncio.start_server(origin.serve, "127.0.0.1", 0)
    upstream = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/m.m3u8"
    with tempfile.TemporaryDirectory() as home:
        process, port = start(asked.binary, home)
        try:
            result = await measure(asked, origin, process, port, f"/media/proxy/hls/manifest.m3u8?d={upstream}")
        finally:
            process.terminate()
            process.wait()
    print(json.dumps(result, indent=2))
    if asked.write:
        with open(asked.write, "w") as f:
            json.dump(result, f, indent=2)
            f.write("\n")
    server.close()
    return not result["wrong"]


async def measure(asked, origin, process, port, url):
    # One viewer first, so that what the first of all takes is not counted.
    one = Viewer(port, url, origin, False)
    await one.watch(time.monotonic() + 3)
    before = memory(process.pid)
    until, begun = time.monotonic() + asked.minutes * 60, cpu(process.pid)
    viewers = [Viewer(port, url, origin, i < asked.viewers * asked.slow) for i in range(asked.viewers)]

    async def later(i, viewer):
        await asyncio.sleep(i / len(viewers) * min(10, asked.minutes * 20))
        await viewer.watch(until)

    tasks = [asyncio.create_task(later(i, v)) for i, v in enumerate(viewers)]
    seen = []
    while time.monotonic() < until:
        await asyncio.sleep(max(0.5, asked.minutes * 60 / 60))
        seen.append(memory(process.pid))
    for task in asyncio.as_completed(tasks):
        try:
            await task
        except (OSError, asyncio.IncompleteReadError) as e:
            one.wrong.append(str(e))
    wrong = [w for v in [one, *viewers] for w in v.wrong]
    twice = {path: n for path, n in origin.asked.items() if n > 1}
    if twice:
        wrong.append(f"fetched more than once: {twice}")
    settled = seen[len(seen) // 3 :] or seen
    third = max(1, len(settled) // 3)
    early, late = max(settled[:third]), max(settled[-third:])
    # In a short run viewers still come, and the first segments are still kept: there is nothing to compare yet.
    if asked.minutes >= 4 and late > early * 1.1 + 4096:
        wrong.append(f"memory grew from {early} to {late} KiB")
    return {
        "name": "viewers",
        "viewers": asked.viewers,
        "minutes": asked.minutes,
        "slow": asked.slow,
        "segments_seen": sum(v.seen for v in viewers),
        "segments_fetched": len(origin.asked),
        "most_fetches_of_one": max(origin.asked.values()),
        "playlists_fetched": origin.playlists,
        "memory_before_kib": before,
        "memory_most_kib": max(seen),
        "memory_late_kib": late,
        "kib_per_viewer": round((max(seen) - before) / asked.viewers, 1),
        "cpu_seconds": round(cpu(process.pid) - begun, 2),
        "wrong": wrong[:10],
    }


sys.exit(0 if asyncio.run(main()) else 1)
