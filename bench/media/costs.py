"""What media costs where no network is in the way: playlists, manifests, decryption; mediaflow-proxy's own decrypter over the same segment.

  costs.py [--write FILE]       builds the examples of interflow-media (release) and runs them; writes JSON

Best times of many rounds, since the machine may be busy. mediaflow-proxy comes from PyPI, into $XDG_CACHE_HOME/interflow-bench/mediaflow.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "interflow-bench", "mediaflow")
THEIRS = """
import sys, time
from mediaflow_proxy.drm.decrypter import decrypt_segment
init, segment = (open(f"{sys.argv[1]}/{n}", "rb").read() for n in ("init.mp4", "segment.m4s"))
kid, key = "09" * 16, "07" * 16
times = []
for _ in range(20):
    begun = time.perf_counter()
    out = decrypt_segment(init, segment, kid, key, include_init=False)
    times.append(time.perf_counter() - begun)
print(min(times) * 1e6, len(out))
"""


def example(name, *words):
    command = ["cargo", "run", "--locked", "--release", "-q", "-p", "interflow-media", "--example", name, "--", *words]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def micros(text):
    number, unit = re.fullmatch(r"([\d.]+)(ns|µs|ms|s)", text).groups()
    return float(number) * {"ns": 1e-3, "µs": 1, "ms": 1e3, "s": 1e6}[unit]


def playlists():
    rows = {}
    for line in example("playlist_cost").splitlines()[1:]:
        name, size, took, speed = re.fullmatch(r"(.*?)\s+(\d+)\s+(\S+)\s+(\d+)", line).groups()
        rows[name] = {"bytes": int(size), "best_us": round(micros(took), 1), "mb_per_s": int(speed)}
    return rows


def decryption():
    text = example("cenc_cost")
    rows = {}
    for line in text.splitlines()[1:]:
        if found := re.fullmatch(r"(.*?)\s+(\d+)\s+(\d+)\s+([\d.]+)", line):
            name, median, best, speed = found.groups()
            rows[name] = {"median_us": int(median), "best_us": int(best), "gb_per_s": float(speed)}
    ratio = re.search(r"ours / theirs = ([\d.]+)", text)
    return rows, float(ratio[1]) if ratio else None


def mediaflow(folder):
    python = os.path.join(CACHE, "bin", "python")
    if not os.path.exists(python):
        subprocess.run([sys.executable, "-m", "venv", CACHE], check=True)
        subprocess.run([os.path.join(CACHE, "bin", "pip"), "install", "-q", "mediaflow-proxy"], check=True)
    example("cenc_cost", "--write", folder)
    said = subprocess.run([python, "-c", THEIRS, folder], check=True, capture_output=True, text=True).stdout.split()
    return float(said[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", help="where the result goes, as JSON")
    asked = parser.parse_args()
    lists, (cenc, openssl) = playlists(), decryption()
    with tempfile.TemporaryDirectory() as folder:
        theirs = mediaflow(folder)
    pipeline, bare = cenc["cenc, one chunk"]["best_us"], cenc["bare AES-CTR, same bytes"]["best_us"]
    iptv, media, manifest = lists["IPTV, 30,000 channels, open"], lists["media, 50 KB, signed"], lists["manifest, 40 representations"]
    figures = {
        "5 MB IPTV list, MB/s (target 300)": iptv["mb_per_s"],
        "50 KB playlist, us (target 150)": media["best_us"],
        "1 MB MPD to HLS, ms (target 5)": round(manifest["best_us"] / 1000, 2),
        "cenc pipeline / bare AES (target 1.6)": round(pipeline / bare, 2),
        "mediaflow-proxy / ours, 4.36 MB cenc (target 15)": round(theirs / pipeline, 1),
        "AES-CTR 4 MiB / openssl speed (target 0.95)": openssl,
    }
    result = {
        "name": "media-costs",
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "load": os.getloadavg()[0],
        "figures": figures,
        "mediaflow_us": round(theirs, 1),
        "playlists": lists,
        "decryption": cenc,
    }
    for name, value in figures.items():
        print(f"{name:<52} {value}")
    if asked.write:
        with open(asked.write, "w") as f:
            json.dump(result, f, indent=2)
            f.write("\n")


main()
