"""Checks the files of a release, and installs them as a person would. What this machine lacks a tool for is reported as skipped."""

import functools
import gzip
import hashlib
import http.server
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

FILES, SCRATCH, VERSION = Path(sys.argv[1]), Path(os.environ["SCRATCH"]), os.environ["VERSION"]
SMALL = "SMALL" in os.environ
MACHINE = platform.machine()
ARCHIVE = f"interflow-{VERSION}-{MACHINE}-linux-musl"
OCI = {"x86_64": "amd64", "aarch64": "arm64"}[MACHINE]
passed = 0


def run(*command, ok=True, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if ok and done.returncode:
        sys.exit(f"FAILED: {' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def check(what, condition, detail=""):
    global passed
    if not condition:
        sys.exit(f"FAILED: {what} {detail}")
    passed += 1
    print(f"ok: {what}")


def has(*tools, root=False):
    missing = [tool for tool in tools if not shutil.which(tool)]
    if missing or (root and os.getuid()):
        print(f"skipped: needs {', '.join(missing) or 'root'}")
    return not missing and not (root and os.getuid())


def answers(program):
    return run(program, "--version").stdout == f"interflow {VERSION}\n"


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def one(pattern):
    [found] = FILES.glob(pattern)
    return found


def sums():
    listed = dict(reversed(line.split("  ", 1)) for line in (FILES / "SHA256SUMS").read_text().splitlines())
    there = {str(path.relative_to(FILES)) for path in FILES.rglob("*") if path.is_file()}
    check("SHA256SUMS lists every file", set(listed) == there - {"SHA256SUMS", "SHA256SUMS.minisig"})
    check("the sums are right", all(sha256(FILES / path) == digest for path, digest in listed.items()))
    return listed


def signature():
    if not (FILES / "SHA256SUMS.minisig").exists():
        print("skipped: the files are not signed")
    elif has("minisign"):
        verify = ["minisign", "-V", "-q", "-p", FILES / "minisign.pub", "-x", FILES / "SHA256SUMS.minisig", "-m"]
        check("the signature is valid", run(*verify, FILES / "SHA256SUMS").returncode == 0)
        other = SCRATCH / "SHA256SUMS"
        other.write_text((FILES / "SHA256SUMS").read_text().replace("a", "b", 1))
        check("it is not that of other sums", run(*verify, other, ok=False).returncode != 0)


def archive():
    where = SCRATCH / "archive"
    where.mkdir()
    run("tar", "-xzf", FILES / f"{ARCHIVE}.tar.gz", "-C", where)
    program = where / ARCHIVE / "interflow"
    check("archive: the program runs", answers(program))
    if not SMALL:
        check("archive: the web UI is in the program", re.search(rb"assets/[\w-]+\.js", program.read_bytes()))
    wanted = ["man/interflow.1", "completions/_interflow", "interflow.service", "LICENSE-MIT", "THIRD-PARTY-LICENSES.txt", "interflow.cdx.json"]
    check("archive: its documents are there", all((where / ARCHIVE / path).stat().st_size for path in wanted))
    licences = (where / ARCHIVE / "THIRD-PARTY-LICENSES.txt").read_text()
    crates = json.loads((where / ARCHIVE / "interflow.cdx.json").read_text())["components"]
    foreign = [c for c in crates if "hashes" in c]
    left = [c["name"] for c in foreign if f"  {c['name']} {c['version']} (" not in licences]
    check(f"archive: the licences of all {len(foreign)} crates are there", len(foreign) > 200 and not left, left)


def sbom():
    for path in FILES.glob("*.cdx.json"):
        bom = json.loads(path.read_text())
        refs = [component["bom-ref"] for component in bom["components"]] + [bom["metadata"]["component"]["bom-ref"]]
        named = {ref for entry in bom["dependencies"] for ref in [entry["ref"], *entry["dependsOn"]]}
        check(f"{path.name}: each crate once, with what it depends on", len(refs) == len(set(refs)) and named == set(refs), named ^ set(refs))
    windows, linux = (
        {c["name"] for path in FILES.glob(f"*{name}.cdx.json") for c in json.loads(path.read_text())["components"]}
        for name in ("windows-gnu", "linux-musl")
    )
    if windows:
        check("each SBOM has the crates of its system", "windows-sys" in windows - linux)


def debian():
    if has("dpkg-deb"):
        where = SCRATCH / "deb"
        run("dpkg-deb", "--extract", one(f"*_{OCI}.deb"), where)
        check(".deb: the program runs", answers(where / "usr/bin/interflow"))
        conffiles = run("dpkg-deb", "--info", one(f"*_{OCI}.deb"), "conffiles").stdout
        check(".deb: upgrades keep the configuration", conffiles == "/etc/interflow/interflow.toml\n")


def rpm():
    if has("rpm", root=True):
        root, package = SCRATCH / "rpm", one(f"*.{MACHINE}.rpm")
        root.mkdir()
        needed = {line for line in run("rpm", "--query", "--package", "--requires", package).stdout.splitlines() if not line.startswith("rpmlib(")}
        # Fedora calls it shadow-utils, openSUSE shadow.
        check(".rpm: what it needs has these names on each system", needed == {"/bin/sh", "ca-certificates", "(shadow-utils or shadow)"}, needed)
        # Its scripts are for a system, which the folder is not; nor are there other packages in it.
        tool = ["rpm", "--root", root, "--dbpath", "/var/lib/rpm"]
        run(*tool, "--install", "--nodeps", "--noscripts", package)
        check(".rpm: the program runs", answers(root / "usr/bin/interflow"))
        changed = run(*tool, "--verify", "--nodeps", "--noscripts", "interflow", ok=False).stdout
        check(".rpm: what is installed is what was packed", not [line for line in changed.splitlines() if not re.match(r"\.{5}[U.][G.]\.\.", line)], changed)
        (root / "etc/interflow/interflow.toml").write_text("# changed\n")
        run(*tool, "--upgrade", "--replacepkgs", "--nodeps", "--noscripts", package)
        check(".rpm: an upgrade keeps the configuration", (root / "etc/interflow/interflow.toml").read_text() == "# changed\n")
        run(*tool, "--erase", "--nodeps", "--noscripts", "interflow")
        check(".rpm: it can be removed", not (root / "usr/bin/interflow").exists())


class Server(http.server.SimpleHTTPRequestHandler):
    """The files, and npm's packages as its registry describes them."""

    packages = {}

    def do_GET(self):
        if document := self.packages.get(self.path.lstrip("/")):
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(body)
        else:
            super().do_GET()

    def log_message(self, *_):
        pass


def serve():
    # A copy, since one check serves an altered archive.
    shutil.copytree(FILES, SCRATCH / "served")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server, directory=SCRATCH / "served"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def passes_on(command):
    """A wrapper's program has its arguments, output and exit code."""
    if SMALL:
        done = run(command, "a b", "--c", ok=False)
        return (done.returncode, done.stdout) == (3, "a b\n--c\n")
    return run(command, "no-such-command", ok=False).returncode == 2


def npm(address):
    if has("npm"):
        for path in (FILES / "npm").iterdir():
            with tarfile.open(path) as package:
                manifest = json.load(package.extractfile("package/package.json"))
            dist = {"tarball": f"{address}/npm/{path.name}", "shasum": hashlib.sha1(path.read_bytes()).hexdigest()}
            version = {manifest["version"]: manifest | {"dist": dist}}
            Server.packages[manifest["name"]] = {"name": manifest["name"], "dist-tags": {"latest": manifest["version"]}, "versions": version}
        where = SCRATCH / "npm"
        where.mkdir()
        (where / "package.json").write_text("{}")
        install = ["npm", "install", "--no-audit", "--no-fund", "--registry", address, "--cache", SCRATCH / "npm-cache"]
        run(*install, "interflow", cwd=where)
        command = where / "node_modules/.bin/interflow"
        check("npm: the program runs", answers(command))
        check("npm: arguments and the exit code are passed on", passes_on(command))
        platforms = sorted(path.name for path in (where / "node_modules").glob("interflow-*"))
        check("npm: the package of this platform only is installed", len(platforms) == 1, platforms)
        run(*install, "--omit=optional", "--force", cwd=where)
        shutil.rmtree(where / "node_modules" / platforms[0], ignore_errors=True)
        said = run(command, "--version", ok=False)
        check("npm: without it, the command says what is missing", said.returncode == 1 and platforms[0] in said.stderr, said.stderr)


def pip():
    where = SCRATCH / "pip"
    run(sys.executable, "-m", "venv", where)
    # As from an index: pip chooses the wheel of this platform.
    run(where / "bin/pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--find-links", FILES / "pypi", "interflow-proxy")
    check("PyPI: the program runs", answers(where / "bin/interflow"))
    check("PyPI: arguments and the exit code are passed on", passes_on(where / "bin/interflow"))
    shown = run(where / "bin/pip", "show", "--disable-pip-version-check", "--files", "interflow-proxy").stdout
    check("PyPI: licences are there", "License-Expression: MIT OR Apache-2.0" in shown or "THIRD-PARTY-LICENSES.txt" in shown, shown)
    run(where / "bin/pip", "uninstall", "-q", "-y", "--disable-pip-version-check", "interflow-proxy")
    check("PyPI: it can be removed", not (where / "bin/interflow").exists())


def install_script(address):
    if not (FILES / "install.sh").exists():
        print("skipped: BASE_URL was not set, so there is no install.sh")
        return
    signed = (FILES / "SHA256SUMS.minisig").exists()
    served = SCRATCH / "served"

    def install(name, path=os.environ["PATH"]):
        prefix = SCRATCH / name
        environment = {"PATH": path, "HOME": str(SCRATCH), "INTERFLOW_PREFIX": str(prefix), "INTERFLOW_BASE_URL": address}
        return prefix, run("sh", FILES / "install.sh", ok=False, env=environment)

    prefix, said = install("local")
    check("install.sh: the program runs", said.returncode == 0 and answers(prefix / "bin/interflow"), said.stderr)
    check("install.sh: man pages and completions are there", all((prefix / "share" / path).exists() for path in ("man/man1/interflow.1", "zsh/site-functions/_interflow")))
    archive = served / f"{ARCHIVE}.tar.gz"
    whole = archive.read_bytes()
    archive.write_bytes(whole + b"\0")
    prefix, said = install("altered")
    check("install.sh: an altered archive is refused", said.returncode == 1 and "SHA-256" in said.stderr and not prefix.exists(), said.stderr)
    archive.write_bytes(whole)
    if signed and has("minisign"):
        sums = served / "SHA256SUMS"
        sums.write_text(sums.read_text() + f"{'0' * 64}  other\n")
        prefix, said = install("unsigned")
        check("install.sh: sums with another signature are refused", said.returncode == 1 and "signature" in said.stderr and not prefix.exists(), said.stderr)
        shutil.copy(FILES / "SHA256SUMS", sums)
        few = SCRATCH / "few"
        few.mkdir()
        for tool in ("sh", "uname", "curl", "sha256sum", "cut", "mktemp", "tar", "gzip", "mkdir", "dirname", "basename", "install", "rm", "cat"):
            (few / tool).symlink_to(shutil.which(tool))
        prefix, said = install("without", str(few))
        check("install.sh: without minisign it says that the signature is not checked", said.returncode == 0 and "not checked" in said.stdout, said.stderr)


def manifests(listed):
    """Each address is that of a file of the release, and each SHA-256 that of the file whose address comes before it."""
    paths = [path for path in ("install.sh", "homebrew/interflow.rb") if (FILES / path).exists()] + [str(p.relative_to(FILES)) for p in (FILES / "winget").glob("*")]
    by_name = {os.path.basename(path): digest for path, digest in listed.items()}
    for path in paths:
        text = (FILES / path).read_text()
        check(f"{path}: every place is filled in", not re.search(r"@[A-Z][A-Z0-9_ ]*@|SHA256 ", text))
        for name, digest in re.findall(r'/(interflow-[^/\s"]+\.(?:tar\.gz|zip))"?\s+(?:sha256 "|InstallerSha256: )([0-9a-fA-F]{64})', text):
            check(f"{path}: {name}", by_name.get(name) == digest.lower())
    if "homebrew/interflow.rb" in paths:
        text = (FILES / "homebrew/interflow.rb").read_text()
        check("the formula has each archive", text.count("sha256 ") == len(list(FILES.glob("*.tar.gz"))))
        if has("ruby"):
            run("ruby", "-c", FILES / "homebrew/interflow.rb")
    try:
        import yaml
    except ImportError:
        return
    for path in (FILES / "winget").glob("*"):
        manifest = yaml.safe_load(path.read_text())
        check(f"{path.name}: has its version", manifest["PackageVersion"] == VERSION and path.name.startswith(manifest["PackageIdentifier"]))


def image():
    layout, root = SCRATCH / "image", SCRATCH / "root"
    with tarfile.open(FILES / f"interflow-{VERSION}-image-{OCI}.tar") as archive:
        archive.extractall(layout, filter="data")
    blobs = list((layout / "blobs/sha256").iterdir())
    check("image: each blob has its digest", all(sha256(blob) == blob.name for blob in blobs))
    blob = lambda descriptor: layout / "blobs" / descriptor["digest"].replace(":", "/")
    [descriptor] = json.loads((layout / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(descriptor).read_text())
    config = json.loads(blob(manifest["config"]).read_text())
    descriptors = [descriptor, manifest["config"], *manifest["layers"]]
    check("image: nothing is left over, and sizes are right", len(blobs) == len(descriptors) and all(blob(d).stat().st_size == d["size"] for d in descriptors))
    [docker] = json.loads((layout / "manifest.json").read_text())
    check("image: `docker load` finds the same", [layout / path for path in (docker["Config"], *docker["Layers"])] == [blob(d) for d in descriptors[1:]])
    root.mkdir()
    for layer, digest in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
        plain = gzip.decompress(blob(layer).read_bytes())
        check("image: a layer is what the configuration says", "sha256:" + hashlib.sha256(plain).hexdigest() == digest)
        subprocess.run(["tar", "-xf", "-", "-C", root, "--numeric-owner"], input=plain, check=True)
    if has("skopeo"):
        seen = json.loads(run("skopeo", "inspect", f"oci-archive:{FILES}/interflow-{VERSION}-image-{OCI}.tar:interflow:{VERSION}").stdout)
        check("image: skopeo reads it", seen["Architecture"] == OCI and seen["Layers"] == [layer["digest"] for layer in manifest["layers"]])
    if has("chroot", "unshare", "ip", root=True):
        settings = config["config"]
        inside = ["chroot", f"--userspec={settings['User']}", root, *settings["Entrypoint"]]
        check("image: the program runs on nothing else", answers_in(inside))
        check("image: its data folder is for its user only", (oct(os.stat(root / "data").st_mode)[-3:], os.stat(root / "data").st_uid) == ("700", 7070))
        if not SMALL:
            started(inside, settings)


def answers_in(inside):
    return run(*inside, "--version").stdout == f"interflow {VERSION}\n"


def started(inside, settings):
    """Starts the container's command in a network of its own, and asks the container's health check until it is healthy."""
    quoted = " ".join(f"'{word}'" for word in inside)
    health = " ".join(f"'{word}'" for word in [*inside[:3], *settings["Healthcheck"]["Test"][1:]])
    script = f"""ip link set lo up
        {quoted} {' '.join(settings['Cmd'])} & process=$!
        for _ in $(seq 300); do if {health} >/dev/null 2>&1; then healthy=1; break; fi; sleep 0.1; done
        kill -TERM $process; wait $process; echo "healthy=${{healthy:-0}} exit=$?" """
    environment = dict(variable.split("=", 1) for variable in settings["Env"]) | {"PATH": os.environ["PATH"]}
    said = run("unshare", "--net", "bash", "-c", script, env=environment)
    check("image: it starts, is healthy and ends in order", "healthy=1 exit=0" in said.stdout, said.stdout + said.stderr)
    check("image: the CA is in the volume", (SCRATCH / "root/data/ca/ca.pem").exists())


def chart():
    helm = os.environ["HELM"]
    if not os.access(helm, os.X_OK):
        print("skipped: the chart, since helm is not installed (`make deploy` builds it)")
        return
    package = FILES / f"helm/interflow-{VERSION}.tgz"
    run(helm, "lint", "--strict", "--quiet", package)
    shown = run(helm, "show", "chart", package).stdout
    check("chart: it is of this version", f"version: {VERSION}" in shown and f"appVersion: {VERSION}" in shown.replace('"', ""))
    given = run(helm, "template", "x", package, ok=False)
    if SMALL:
        check("chart: IMAGE is its default", f"registry.example.com/interflow:{VERSION}" in given.stdout, given.stderr)


def page(address):
    """The page about packages names files that are there, and its commands that install from them work."""
    text = Path("docs/operations/packages.md").read_text()
    # Written for one machine; a reader of another puts in its names.
    for name, value in (("VERSION", VERSION), ("x86_64", MACHINE), ("amd64", OCI), ("linux-x64", {"amd64": "linux-x64", "arm64": "linux-arm64"}[OCI])):
        text = text.replace(name, value)
    names = r"(?<![\w/.*-])(?:\./)?((?:\w+/)?[\w.*-]+\.(?:deb|rpm|tar|tar\.gz|tgz|whl|cdx\.json))(?![\w.])"
    named = set(re.findall(names, re.sub("TARGET|ARCHITECTURE", "*", text)))
    # dpkg-deb and rpmbuild make what they are there for.
    named = {name for name in named if not name.endswith((".deb", ".rpm")) or list(FILES.glob(f"*{name[-4:]}"))}
    left = [name for name in named if not list(FILES.glob(name)) + list(FILES.glob(f"*/{name}"))]
    check(f"the page: its {len(named)} names of files are right", len(named) > 9 and not left, left or named)
    where = SCRATCH / "page"
    run(sys.executable, "-m", "venv", where)
    # pip for pipx, a folder for the registry of images. Npm's registry has no such package, as before the first release.
    settings = {"PATH": f"{where}/bin:{os.environ['PATH']}", "npm_config_prefix": str(where), "npm_config_registry": f"{address}/none"}
    for tool, command, program in (("npm", r"`(npm install --global \./.*?)`", "bin/interflow"), ("pip", r"`(pipx install \./.*?)`", "bin/interflow"), ("skopeo", "skopeo copy .*", "image/manifest.json")):
        [found] = re.findall(command, text)
        if has(tool):
            run("bash", "-c", re.sub(r"^pipx|docker://\S+", lambda m: "pip" if m[0] == "pipx" else f"dir:{where}/image", found), cwd=FILES, env=os.environ | settings)
            check(f"the page: {found}", answers(where / program) if program.startswith("bin/") else (where / program).exists())
            (where / program).unlink()


listed = sums()
signature()
archive()
sbom()
debian()
rpm()
address = serve()
npm(address)
pip()
page(address)
install_script(address)
manifests(listed)
image()
chart()
print(f"{passed} passed, 0 failed")
