"""Follows README and the tutorials in fresh containers: `main.py FILES [PART OF A PAGE'S PATH]`; tests/first-hour/run says more."""

import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from pages import blocks

HERE = pathlib.Path(__file__).parent
# What README's commands need, and what any Debian has that a person works on.
BASE = ["ca-certificates", "curl", "sudo"]
# `ca-certificates` brings openssl.
INSTALLED = [*BASE, "openssl"]
FIRST = "install.sh"


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


class Systems:
    """A minimal Debian, and what packages add to it: made once, and only read afterwards."""

    def __init__(self, cache):
        self.cache = cache
        cache.mkdir(parents=True, exist_ok=True)
        release = dict(line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines() if "=" in line)
        self.codename = release["VERSION_CODENAME"].strip('"')
        self.base = cache / self.codename
        if not self.base.exists():
            targets = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Identifier: Packages", f"Codename: {self.codename}", "Component: main").split()
            if not targets:
                sys.exit(f"apt knows no source of {self.codename}: run apt-get update")
            print(f"making a minimal {self.codename}; a minute", flush=True)
            made = self.scratch()
            run("debootstrap", "--variant=minbase", f"--include={','.join(BASE)}", self.codename, made, targets[0])
            run("chroot", made, "useradd", "--create-home", "--shell", "/bin/bash", "reader")
            (made / "etc/sudoers.d/reader").write_text("reader ALL=(ALL) NOPASSWD: ALL\n")
            made.rename(self.base)

    def scratch(self):
        scratch = self.cache / "new"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        return scratch

    def layers(self, packages):
        """The folders of the system with these packages, the uppermost first."""
        if not packages:
            return [str(self.base)]
        layer = self.cache / f"{self.codename}-{'-'.join(sorted(packages))}"
        if not layer.exists():
            print(f"installing {' '.join(packages)} in it", flush=True)
            scratch = self.scratch()
            for folder in ("upper", "work", "system"):
                (scratch / folder).mkdir()
            script = """set -e
                mount -t overlay interflow -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/system"
                mount -t proc proc "$2/system/proc"
                cp /etc/resolv.conf "$2/system/etc/resolv.conf"
                shift; system=$1/system; shift
                chroot "$system" apt-get update -q
                chroot "$system" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"
                rm -rf "$system"/var/cache/apt/* "$system"/var/lib/apt/lists/*"""
            run("unshare", "--mount", "bash", "-c", script, "bash", self.base, scratch, *packages)
            (scratch / "upper").rename(layer)
        return [str(layer), str(self.base)]


def ways(files):
    """How to install: the lines of README's block, and the archives' block of the page about packages."""
    lines = [block for block in blocks(pathlib.Path("README.md").read_text()) if "/install.sh" in block.text][0].text.splitlines()
    found = {}
    for line in lines:
        line = line.split("  #")[0].strip()
        downloads = re.findall(r"\./(\S+)", line)
        tool = line.removeprefix("sudo ").split()[0]
        found[FIRST if FIRST in line else tool] = {"lines": [line], "downloads": downloads, "packages": [] if tool in ("curl", "apt") else [tool]}
    [archives] = [block for block in blocks(pathlib.Path("docs/operations/packages.md").read_text()) if block.heading == "Archives"]
    archive = f"interflow-*-{os.uname().machine}-linux-musl.tar.gz"
    names = ["SHA256SUMS"] + [os.path.basename(path) for path in glob.glob(f"{files}/{archive}")]
    found["archive"] = {"lines": archives.text.splitlines(), "downloads": names, "packages": []}
    return found


def exclusions():
    """What is excluded of each page: beginnings of commands."""
    found = {}
    for line in (HERE / "exclusions").read_text().splitlines():
        if line and line[0] not in "# ":
            page, beginning = line.split(": ", 1)
            found.setdefault(page, []).append(beginning)
    return found


def needs(text):
    """The programs that a page says it needs."""
    return [name for line in re.findall("(?m)^You need .*", text) for name in re.findall("`([a-z0-9-]+)`", line) if name not in INSTALLED]


def visits(files, excluded):
    """(page, name of the way, way) of each."""
    by_name = {name: way for name, way in ways(files).items() if not any(line.startswith(e) for line in way["lines"] for e in excluded.get("README.md", []))}
    for name, way in by_name.items():
        yield "README.md", name, way
    number = lambda path: int(re.search("[0-9]+", path)[0])
    for page in sorted(glob.glob("docs/tutorials/*.md"), key=number):
        text = pathlib.Path(page).read_text()
        yield page, FIRST, by_name[FIRST] | {"packages": [name for name in needs(text) if not any(e.startswith(name) for e in excluded.get(page, []))]}


def main(files, only=""):
    systems, excluded = Systems(pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target")).resolve() / "first-hour"), exclusions()
    failed, used, ran = [], set(), 0
    for page, name, way in visits(files, excluded):
        if only not in page:
            continue
        begun = time.monotonic()
        job = {"page": page, "way": way, "files": os.path.realpath(files), "layers": systems.layers(way["packages"]), "exclusions": excluded.get(page, [])}
        inside = ["unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child", sys.executable, HERE / "visit.py", json.dumps(job)]
        done = subprocess.run(list(map(str, inside)), stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
        result = json.loads(done.stdout) if done.returncode == 0 else {"ran": 0, "failures": [f"{page}: the visit broke off"], "excluded": []}
        ran += result["ran"]
        used |= {(page, beginning) for beginning in result["excluded"]}
        failed += [f"(installed by {name}) {failure}" for failure in result["failures"]]
        print(f"{'FAILED' if result['failures'] else 'ok'}: {page}, installed by {name}: {result['ran']} commands, {time.monotonic() - begun:.0f} s", flush=True)
    for page, beginnings in excluded.items():
        failed += [f"{page}: no command begins with {b!r}, which is in the exclusions" for b in beginnings if only in page and (page, b) not in used]
    for failure in failed:
        print(f"\n{failure}")
    print(f"{max(ran - len(failed), 0)} passed, {len(failed)} failed")
    sys.exit(bool(failed))


main(*sys.argv[1:])
