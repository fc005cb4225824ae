"""The packages of Debian and of RPM's systems, made by their own tools from one tree of files."""

import gzip
import os
import re
import shutil
import subprocess
import tempfile

from archives import File

SERVICE = "usr/lib/systemd/system/interflow.service"
CONFIGURATION = "etc/interflow/interflow.toml"


def tree(binary, share, zsh):
    """What both install; `zsh` is the distribution's folder of completions."""
    installed = {"usr/bin/interflow": File(binary, 0o755), CONFIGURATION: File(share["interflow.toml"].data, 0o640), SERVICE: share["interflow.service"]}
    for path, file in share.items():
        folder, _, name = path.rpartition("/")
        if folder == "man":
            installed[f"usr/share/man/man1/{name}.gz"] = File(gzip.compress(file.data, 9, mtime=0))
        elif folder == "completions":
            shell = {"interflow.bash": "usr/share/bash-completion/completions/interflow", "_interflow": f"{zsh}/_interflow"}
            installed[shell.get(name, f"usr/share/fish/vendor_completions.d/{name}")] = file
        elif path not in ("interflow.toml", "interflow.service"):
            installed[f"usr/share/doc/interflow/{path}"] = file
    return installed


def write(files, root, epoch):
    """Every time is the release's: the tools keep what they find."""
    for path, file in files.items():
        at = os.path.join(root, path)
        os.makedirs(os.path.dirname(at), exist_ok=True)
        with open(at, "wb") as f:
            f.write(file.data)
        os.chmod(at, file.mode)
    for folder, _, names in os.walk(root, topdown=False):
        for name in names:
            os.utime(os.path.join(folder, name), (epoch, epoch))
        os.chmod(folder, 0o755)
        os.utime(folder, (epoch, epoch))


def fill(template, **values):
    with open(template) as f:
        return re.sub(r"@([A-Z_0-9]+)@", lambda match: str(values[match[1].lower()]), f.read())


def deb(binary, share, architecture, version, epoch, out):
    files = tree(binary, share, "usr/share/zsh/vendor-completions")
    size = sum(-(-len(file.data) // 1024) for file in files.values())
    # What comes before a release sorts before it.
    package_version = version.replace("-", "~") + "-1"
    with open("deploy/package/debian/copyright", "rb") as f:
        files["usr/share/doc/interflow/copyright"] = File(f.read())
    files["DEBIAN/control"] = File(fill("deploy/package/debian/control.in", version=package_version, architecture=architecture, size=size).encode())
    files["DEBIAN/conffiles"] = File(f"/{CONFIGURATION}\n".encode())
    for script in ("postinst", "prerm", "postrm"):
        with open(f"deploy/package/debian/{script}", "rb") as f:
            files[f"DEBIAN/{script}"] = File(f.read(), 0o755)
    with tempfile.TemporaryDirectory() as root:
        write(files, root, epoch)
        package = os.path.join(out, f"interflow_{package_version}_{architecture}.deb")
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Zxz", "-z6", "--threads-max=1", "--build", root, package], check=True, stdout=subprocess.DEVNULL)


def rpm(binary, share, architecture, version, epoch, out):
    with tempfile.TemporaryDirectory() as folder:
        # The tool deletes its root when it is done.
        write(tree(binary, share, "usr/share/zsh/site-functions"), f"{folder}/files", epoch)
        scripts = os.path.abspath("deploy/package/rpm")
        with open(f"{folder}/interflow.spec", "w") as f:
            f.write(fill("deploy/package/rpm/interflow.spec.in", version=version.replace("-", "~"), files=f"{folder}/files", scripts=scripts))
        command = ["rpmbuild", "-bb", "--quiet", "--target", f"{architecture}-linux", "--define", f"_topdir {folder}", f"{folder}/interflow.spec"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        [package] = os.listdir(f"{folder}/RPMS/{architecture}")
        shutil.move(f"{folder}/RPMS/{architecture}/{package}", os.path.join(out, package))
