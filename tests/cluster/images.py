"""Writes the images of the cluster into one OCI archive, without a registry: the pause container, a client of busybox and curl, and Interflow.

    images.py CONTAINERFILE BINARY PAUSE ARCHIVE

Interflow's is what the last stage of its Containerfile describes: user, variables, volume, entry point and command are read from there. The
base image is replaced by files of this machine: the libraries of the binary, and the commands and certificates that Debian slim has."""

import glob
import hashlib
import io
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tarfile

CONTAINERFILE, BINARY, PAUSE, ARCHIVE = sys.argv[1:5]
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


def libraries(path):
    """The shared libraries of a binary, with the loader; none of a static one."""
    output = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
    return re.findall(r"(/\S+) \(0x", output)


class Layer:
    def __init__(self):
        self.buffer = io.BytesIO()
        self.tar = tarfile.open(fileobj=self.buffer, mode="w")
        self.names = set()

    def add(self, name, data=None, kind=tarfile.REGTYPE, mode=0o755, owner=0, target=""):
        name = name.strip("/")
        if name in self.names:
            return
        if os.path.dirname(name):
            self.add(os.path.dirname(name), kind=tarfile.DIRTYPE)
        self.names.add(name)
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.uid, info.gid, info.linkname = kind, mode, owner, owner, target
        info.size = len(data or b"")
        self.tar.addfile(info, io.BytesIO(data or b""))

    def file(self, name, path, mode=0o755):
        with open(path, "rb") as f:
            self.add(name, f.read(), mode=mode)

    def program(self, name, path):
        self.file(name, path)
        for library in libraries(path):
            self.file(library, library)

    def system(self, *users):
        # Also what glibc loads on demand: names of hosts.
        for pattern in ("libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2"):
            for path in glob.glob(f"/lib/*-linux-gnu/{pattern}"):
                self.file(path, path)
        passwd = "".join(f"{name}:x:{number}:{number}::{home}:/bin/sh\n" for name, number, home in [("root", 0, "/root"), *users])
        self.add("etc/passwd", passwd.encode(), mode=0o644)
        self.add("etc/group", "".join(f"{name}:x:{number}:\n" for name, number, _ in [("root", 0, ""), *users]).encode(), mode=0o644)
        self.add("etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n", mode=0o644)
        self.add("tmp", kind=tarfile.DIRTYPE, mode=0o1777)

    def bytes(self):
        self.tar.close()
        return self.buffer.getvalue()


def last_stage(path):
    """Instructions of the last stage, as (name, arguments)."""
    with open(path) as f:
        text = re.sub(r"^#.*\n", "", f.read(), flags=re.M).replace("\\\n", " ")
    found = [(line.split(None, 1) + [""])[:2] for line in text.splitlines() if line.strip()]
    start = max(i for i, (name, _) in enumerate(found) if name == "FROM")
    return found[start:]


def interflow():
    config = {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}
    account = None
    for name, rest in last_stage(CONTAINERFILE):
        if name == "USER":
            config["User"] = rest
        elif name == "ENV":
            config["Env"] += shlex.split(rest)
        elif name in ("ENTRYPOINT", "CMD"):
            config[name.capitalize()] = json.loads(rest)
        elif name == "VOLUME":
            config["Volumes"] = {rest: {}}
        elif name == "EXPOSE":
            config["ExposedPorts"] = {f"{port}/tcp": {} for port in rest.split()}
        elif name == "STOPSIGNAL":
            config["StopSignal"] = rest
        elif name == "RUN":
            account = re.search(r"useradd .*--uid (\d+) .*--home-dir (\S+) (\S+)", rest)
    number, home, user = int(account[1]), account[2], account[3]
    config["Entrypoint"] = config.pop("Entrypoint")
    layer = Layer()
    layer.system((user, number, home))
    for name in ("sh", "sleep", "cat", "ls", "id", "env"):
        layer.program(f"bin/{name}", f"/bin/{name}")
    layer.program(config["Entrypoint"][0], BINARY)
    layer.file("etc/ssl/certs/ca-certificates.crt", "/etc/ssl/certs/ca-certificates.crt", mode=0o644)
    layer.add(home, kind=tarfile.DIRTYPE, mode=0o700, owner=number)
    return layer, config


def client():
    layer = Layer()
    layer.system()
    layer.program("bin/busybox", "/bin/busybox")
    for name in ("sh", "sleep", "cat", "env", "wget", "nslookup"):
        layer.add(f"bin/{name}", kind=tarfile.SYMTYPE, target="busybox")
    layer.program("bin/curl", subprocess.check_output(["which", "curl"], text=True).strip())
    return layer, {"Env": ["PATH=/bin"], "Cmd": ["sleep", "1000000"]}


def pause():
    layer = Layer()
    layer.program("pause", PAUSE)
    return layer, {"Entrypoint": ["/pause"], "User": "65535:65535"}


with tarfile.open(ARCHIVE, "w") as archive:
    def write(name, data):
        info = tarfile.TarInfo(name)
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))

    def blob(media_type, data):
        digest = hashlib.sha256(data).hexdigest()
        write(f"blobs/sha256/{digest}", data)
        return {"mediaType": f"application/vnd.oci.image.{media_type}", "digest": f"sha256:{digest}", "size": len(data)}

    manifests = []
    for name, (layer, config) in {"pause:1": pause(), "client:1": client(), "interflow:1": interflow()}.items():
        data = layer.bytes()
        content = blob("layer.v1.tar", data)
        settings = {"architecture": ARCHITECTURE, "os": "linux", "config": config, "rootfs": {"type": "layers", "diff_ids": [content["digest"]]}}
        manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                    "config": blob("config.v1+json", json.dumps(settings).encode()), "layers": [content]}
        manifests.append({**blob("manifest.v1+json", json.dumps(manifest).encode()),
                          "annotations": {"io.containerd.image.name": f"interflow.test/{name}"}})
    write("oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
    write("index.json", json.dumps({"schemaVersion": 2, "manifests": manifests}).encode())
