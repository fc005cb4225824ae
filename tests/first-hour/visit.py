"""One newcomer in one container: installs Interflow by one way, then types every command of one page. Runs in namespaces of its own
(main.py); prints a JSON object with `ran`, `failures`, and the `excluded` commands."""

import encodings.idna  # for the server; it could not be found once the root has changed
import functools
import hashlib
import http.server
import json
import os
import pathlib
import pwd
import subprocess
import sys
import tarfile
import threading
import time

from pages import blocks, commands, matches, only_reads, starts_an_instance
from terminal import Terminal

PORT = 8000
ADDRESS = f"http://127.0.0.1:{PORT}"
USER = "reader"


def enter(layers, files):
    """Changes the root to a system that is thrown away when this process ends, with its mounts and its network."""
    mount = lambda *words: subprocess.run(["mount", *words], check=True)
    here = "/mnt"
    mount("-t", "tmpfs", "interflow", here)
    root = f"{here}/root"
    for folder in ("upper", "work", "root"):
        os.mkdir(f"{here}/{folder}")
    mount("-t", "overlay", "interflow", "-o", f"lowerdir={':'.join(layers)},upperdir={here}/upper,workdir={here}/work", root)
    mount("-t", "proc", "proc", f"{root}/proc")
    mount("-t", "tmpfs", "-o", "mode=755", "dev", f"{root}/dev")
    for name in ("null", "zero", "full", "random", "urandom", "tty"):
        pathlib.Path(f"{root}/dev/{name}").touch()
        mount("--bind", f"/dev/{name}", f"{root}/dev/{name}")
    for folder, kind, options in (("pts", "devpts", "newinstance,ptmxmode=0666,mode=620,gid=5"), ("shm", "tmpfs", "mode=1777")):
        os.mkdir(f"{root}/dev/{folder}")
        mount("-t", kind, "-o", options, folder, f"{root}/dev/{folder}")
    for name, target in (("ptmx", "pts/ptmx"), ("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(target, f"{root}/dev/{name}")
    os.mkdir(f"{root}/files")
    mount("--bind", "-o", "ro", files, f"{root}/files")
    subprocess.run(["hostname", "newcomer"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    os.chroot(root)
    os.chdir("/")
    pathlib.Path("/etc/hosts").write_text("127.0.0.1 localhost newcomer\n::1 localhost\n")


class Server(http.server.SimpleHTTPRequestHandler):
    """The release's files, and its npm packages as a registry describes them. A folder's list is all that pip asks for."""

    npm = {}

    def do_GET(self):
        if document := self.npm.get(self.path.lstrip("/").replace("%2f", "/")):
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())
        else:
            super().do_GET()

    def log_message(self, *_):
        pass


def npm_packages(files):
    """By name, as npm's registry describes them."""
    found = {}
    for path in pathlib.Path(files, "npm").glob("*.tgz"):
        with tarfile.open(path) as package:
            manifest = json.load(package.extractfile("package/package.json"))
        dist = {"tarball": f"{ADDRESS}/npm/{path.name}", "shasum": hashlib.sha1(path.read_bytes()).hexdigest()}
        name, version = manifest["name"], manifest["version"]
        found[name] = {"name": name, "dist-tags": {"latest": version}, "versions": {version: manifest | {"dist": dist}}}
    return found


def serve():
    """In place of the internet: the addresses that README calls by name, and both registries. Returns what the installer must be told."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), functools.partial(Server, directory="/files"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pathlib.Path("/etc/npmrc").write_text(f"registry={ADDRESS}\naudit=false\nupdate-notifier=false\n")
    pathlib.Path("/etc/pip.conf").write_text(f"[global]\nno-index = true\nfind-links =\n    {ADDRESS}/pypi/\n    /usr/share/python-wheels\ndisable-pip-version-check = true\n")
    installer = pathlib.Path("/files/install.sh")
    baked = installer.exists() and ADDRESS in installer.read_text()
    pathlib.Path("/etc/profile.d/release.sh").write_text(f"export FILES={ADDRESS}\n")
    return {} if baked else {"INTERFLOW_BASE_URL": ADDRESS}


class Visit:
    def __init__(self, page, text, exclusions):
        self.page, self.text, self.exclusions = page, text, exclusions
        self.user = pwd.getpwnam(USER)
        self.result = {"ran": 0, "failures": [], "excluded": []}
        self.shell = self.instance = None

    def fail(self, place, what):
        self.result["failures"].append(f"{place}: {what}")

    def install(self, way, settings):
        shell = Terminal(self.user)
        for line in [f"export {name}={value}" for name, value in settings.items()] + [f"curl -fsSLO $FILES/{name}" for name in way["downloads"]] + way["lines"]:
            status, screen = shell.run(line, 120)
            if status:
                raise RuntimeError(f"$ {line}\n{screen}\nended with {status}")
        # `~/.local/bin` is on the path of the next login.
        shell.close()

    def read(self):
        self.shell = Terminal(self.user)
        for block in blocks(self.text):
            if block.file:
                self.save(block)
            for command in commands(block) if block.language in ("console", "sh") else []:
                excluded = next((e for e in self.exclusions if command.script.startswith(e)), None)
                if excluded is None and "install.sh" in block.text:
                    # Each of these is a visit of its own.
                    continue
                begun = time.monotonic()
                problem = (self.start if starts_an_instance(command.script) else self.type)(command, 60 if excluded is None else 10)
                self.result["ran"] += excluded is None
                if os.environ.get("TIMES"):
                    print(f"{time.monotonic() - begun:6.1f} s  {command.script.splitlines()[0]}", file=sys.stderr)
                place = f"{self.page}:{command.line}"
                if os.environ.get("TIMES") and excluded is not None:
                    print("  excluded:", problem, file=sys.stderr)
                if excluded is not None:
                    self.result["excluded"].append(excluded)
                    if not problem:
                        self.fail(place, f"is in the exclusions, and works: $ {command.script}")
                elif problem:
                    shown = "" if command.shown is None else "\n-- the page shows:\n" + "\n".join(command.shown)
                    self.fail(place, f"$ {command.script}{shown}\n-- {problem}")
        self.stop_instance()

    def save(self, block):
        path = pathlib.Path(self.user.pw_dir) / block.file
        path.parent.mkdir(exist_ok=True)
        path.write_text(block.text)
        for made in (path, path.parent):
            os.chown(made, self.user.pw_uid, self.user.pw_gid)

    def type(self, command, seconds):
        """A reader looks again at what others write a moment later, such as the recording."""
        deadline = time.monotonic() + 5
        while True:
            # What follows the recording goes on until the reader presses Ctrl-C.
            follows = command.script.startswith("interflow flows tail")
            status, screen = self.shell.run(command.script, 3 if follows else seconds)
            if command.shown is None:
                return None if status in ((0, 130) if follows else (0,)) else f"ended with {status}:\n{screen}"
            if matches(command.shown, screen):
                return None
            if not only_reads(command.script) or time.monotonic() > deadline:
                return f"printed:\n{screen}"
            time.sleep(0.1)

    def start(self, command, seconds):
        """Starts an instance in a terminal of its own, which stays open; the one before is stopped."""
        former = self.stop_instance()
        instance = Terminal(self.user)
        instance.type(command.script)
        deadline = time.monotonic() + min(seconds, 20)
        while time.monotonic() < deadline:
            if instance.status(0) is not None:
                if former:
                    # The page goes on with it; what it prints at this start is not on the page.
                    self.start(former._replace(shown=None), seconds)
                return f"ended:\n{instance.screen()}"
            is_quiet = not instance.read(0.5)
            if is_quiet and instance.screen() and matches(command.shown or ["…"], instance.screen()):
                self.instance = (command, instance)
                return None
        instance.interrupt()
        return f"printed:\n{instance.screen()}"

    def stop_instance(self):
        """Returns the command that had started it."""
        if self.instance:
            command, instance = self.instance
            self.instance = None
            status = instance.interrupt()
            if status:
                self.fail(f"{self.page}:{command.line}", f"after Ctrl-C, {command.script} ended with {status}:\n{instance.screen()}")
            instance.close()
            return command
        return None

    def left(self):
        """Processes that a page leaves behind when the reader has closed the terminals."""
        self.shell.close()
        deadline = time.monotonic() + 5
        while True:
            running = []
            for path in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                    if path.stat().st_uid == self.user.pw_uid and command and not command.startswith("-bash"):
                        running.append(command)
                except FileNotFoundError:
                    pass
            if not running or time.monotonic() > deadline:
                return running
            time.sleep(0.2)


def main():
    job = json.loads(sys.argv[1])
    text = pathlib.Path(job["page"]).read_text()
    Server.npm = npm_packages(job["files"])
    enter(job["layers"], job["files"])
    settings = serve()
    visit = Visit(job["page"], text, job["exclusions"])
    try:
        visit.install(job["way"], settings)
        visit.read()
        if running := visit.left():
            visit.fail(job["page"], f"leaves running: {running}")
    except (RuntimeError, TimeoutError) as error:
        visit.fail(job["page"], str(error))
    print(json.dumps(visit.result))


main()
