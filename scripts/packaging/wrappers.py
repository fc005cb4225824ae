"""Packages of npm and PyPI that carry the binary."""

import base64
import hashlib
import json
import re

from archives import File, gz, tar, zipped

SUMMARY = "Intercepting HTTP(S) proxy and LLM gateway"
LICENCE = "MIT OR Apache-2.0"
CARRIED = ("LICENSE-APACHE", "LICENSE-MIT", "THIRD-PARTY-LICENSES.txt")


def npm_file(name, version):
    """As `npm pack` calls it."""
    return f"{name.removeprefix('@').replace('/', '-')}-{version}.tgz"


def npm_package(manifest, files, epoch):
    files = files | {"package.json": File((json.dumps(manifest, indent=2) + "\n").encode())}
    return gz(tar({f"package/{path}": file for path, file in files.items()}, epoch))


def npm(name, version, binaries, share, epoch):
    """The package `name`, whose command starts the binary of the optional package that fits the platform."""
    packages, optional = {}, {}
    about = {"version": version, "description": SUMMARY, "license": LICENCE}
    for target, binary in binaries.items():
        own = f"{name}-{target.npm_os}-{target.npm_cpu}"
        manifest = {"name": own, **about, "os": [target.npm_os], "cpu": [target.npm_cpu], "preferUnplugged": True}
        files = {f"bin/{target.program}": File(binary, 0o755)} | {path: share[target][path] for path in CARRIED}
        packages[npm_file(own, version)] = npm_package(manifest, files, epoch)
        optional[own] = version
    manifest = {"name": name, **about, "bin": {"interflow": "bin/interflow.js"}, "engines": {"node": ">=18"}, "optionalDependencies": optional}
    with open("deploy/package/npm/interflow.js") as f:
        program = f.read().replace("@NAME@", name)
    some = next(iter(share.values()))
    files = {"bin/interflow.js": File(program.encode(), 0o755)} | {path: some[path] for path in ("README.md", *CARRIED[:2])}
    packages[npm_file(name, version)] = npm_package(manifest, files, epoch)
    return packages


def wheel(name, version, target, binary, share, epoch):
    """The wheel's file name and bytes."""
    # PEP 440 writes 1.0.0-rc.1 as 1.0.0rc1.
    version = re.sub(r"-(alpha|beta|rc)\.?", lambda m: {"alpha": "a", "beta": "b"}.get(m[1], m[1]), version)
    distribution = re.sub(r"[-_.]+", "_", name).lower()
    info, tags = f"{distribution}-{version}.dist-info", [f"py3-none-{platform}" for platform in target.wheel.split(".")]
    metadata = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nSummary: {SUMMARY}\nLicense-Expression: {LICENCE}\n"
    metadata += "".join(f"License-File: {path}\n" for path in CARRIED) + "Requires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n"
    files = {f"{distribution}-{version}.data/scripts/{target.program}": File(binary, 0o755)}
    files |= {f"{info}/licenses/{path}": share[path] for path in CARRIED}
    files[f"{info}/METADATA"] = File(metadata.encode() + share["README.md"].data)
    lines = ["Wheel-Version: 1.0", "Generator: interflow", "Root-Is-Purelib: false", *(f"Tag: {tag}" for tag in tags)]
    files[f"{info}/WHEEL"] = File("".join(f"{line}\n" for line in lines).encode())
    digest = lambda data: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    record = [f"{path},sha256={digest(file.data)},{len(file.data)}\n" for path, file in files.items()]
    files[f"{info}/RECORD"] = File("".join([*record, f"{info}/RECORD,,\n"]).encode())
    return f"{distribution}-{version}-py3-none-{target.wheel}.whl", zipped(files, epoch)
