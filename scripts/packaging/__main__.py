"""Makes the files of a release in a folder, given the binaries: `packaging OUT TARGET=BINARY...`; see scripts/release for the variables.

The bytes of each file depend on the binaries, the checkout and the tools' versions only, not on time, folder or account.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

import image
import installers
import linux
import wrappers
from archives import File, gz, tar, zipped
from components import Components
from targets import TARGETS

EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
DOCS = ("README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE-APACHE", "LICENSE-MIT")


def main(out, *named):
    with open("Cargo.toml") as f:
        version = re.search(r'(?m)^\[workspace\.package\](?:\n[^\[].*)*?\nversion = "(.*)"', f.read())[1]
    paths = dict(pair.split("=", 1) for pair in named)
    release = Release(out, version, {TARGETS[target]: read(path) for target, path in paths.items()})
    common = shared_files(paths.values())
    for triple in paths:
        target = TARGETS[triple]
        components = Components(triple, version)
        sbom = components.sbom(EPOCH)
        release.write(f"interflow-{version}-{target.name}.cdx.json", sbom)
        release.share[target] = common | {"interflow.cdx.json": File(sbom), "THIRD-PARTY-LICENSES.txt": File(components.licences())}
        release.archive(target)
        if target.oci:
            release.linux(target)
    release.wrappers()
    release.chart()
    release.installers()
    release.sums()


def read(path):
    with open(path, "rb") as f:
        return f.read()


def shared_files(binaries):
    """Documentation, man pages, completions and the service's files."""
    files = {name: File(read(name)) for name in DOCS}
    files["network.toml"], files["interflow.toml"] = File(read("deploy/interflow.toml")), File(read("deploy/package/interflow.toml"))
    # The instructions in the unit's first lines are for those who have no package.
    unit = re.sub(r"^# Interflow as a system service(?s:.*?)\n\n", "", read("deploy/systemd/interflow.service").decode())
    files["interflow.service"] = File(unit.replace("/usr/local/bin/interflow", "/usr/bin/interflow").encode())
    program = next(filter(runs_here, binaries), None)
    if program is None:
        sys.exit("none of the binaries runs on this machine, and one must print man pages and completions: give one for this system")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "man", "--dir", folder], check=True, stdout=subprocess.DEVNULL)
        for page in sorted(os.listdir(folder)):
            files[f"man/{page}"] = File(read(os.path.join(folder, page)))
    for shell, name in (("bash", "interflow.bash"), ("zsh", "_interflow"), ("fish", "interflow.fish")):
        files[f"completions/{name}"] = File(subprocess.run([program, "completions", shell], check=True, capture_output=True).stdout)
    return files


def runs_here(program):
    try:
        return subprocess.run([program, "--version"], capture_output=True).returncode == 0
    except OSError:
        return False


class Release:
    def __init__(self, out, version, binaries):
        self.out, self.version, self.binaries = out, version, binaries
        self.share, self.archives = {}, {}
        self.signed = os.environ.get("MINISIGN_KEY", "")
        if os.path.isdir(out) and os.listdir(out) and not os.path.exists(os.path.join(out, "SHA256SUMS")):
            sys.exit(f"OUT: {out} is a folder with files that are not of a release; name an empty one")
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(out)

    def write(self, path, data):
        path = os.path.join(self.out, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)

    def archive(self, target):
        folder = f"interflow-{self.version}-{target.name}"
        files = self.share[target] | {target.program: File(self.binaries[target], 0o755)}
        if not target.oci:
            del files["interflow.service"]
        files = {f"{folder}/{path}": file for path, file in sorted(files.items())}
        windows = target.program.endswith(".exe")
        self.archives[target.name] = zipped(files, EPOCH) if windows else gz(tar(files, EPOCH))
        self.write(folder + (".zip" if windows else ".tar.gz"), self.archives[target.name])

    def linux(self, target):
        binary, share = self.binaries[target], self.share[target]
        for tool, package, make, architecture in (("dpkg-deb", "dpkg", linux.deb, target.deb), ("rpmbuild", "rpm", linux.rpm, target.rpm)):
            if shutil.which(tool):
                make(binary, share, architecture, self.version, EPOCH, self.out)
            else:
                print(f"left out: the package for {architecture} that {tool} makes (apt-get install {package})")
        bundle = os.environ.get("CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt")
        if os.path.exists(bundle):
            made = image.image(binary, read(bundle), target.oci, self.version, EPOCH)
            self.write(f"interflow-{self.version}-image-{target.oci}.tar", made)
        else:
            print(f"left out: the image for {target.oci}, since {bundle} does not exist (CA_BUNDLE names another file)")

    def wrappers(self):
        npm, pypi = os.environ.get("NPM_NAME", "interflow"), os.environ.get("PYPI_NAME", "interflow-proxy")
        for name, package in wrappers.npm(npm, self.version, self.binaries, self.share, EPOCH).items():
            self.write(f"npm/{name}", package)
        for target, binary in self.binaries.items():
            self.write("pypi/{}".format((made := wrappers.wheel(pypi, self.version, target, binary, self.share[target], EPOCH))[0]), made[1])

    def chart(self):
        """The chart, with the image's repository as its default where it is known."""
        root, files = "deploy/helm/interflow", {}
        for folder, _, names in os.walk(root):
            for name in names:
                path = os.path.join(folder, name)
                files[f"interflow/{os.path.relpath(path, root)}"] = File(read(path))
        if repository := os.environ.get("IMAGE"):
            values = files["interflow/values.yaml"].data.decode()
            values, found = re.subn(r'(?m)^  repository: ""$', f"  repository: {repository}", values)
            assert found == 1, "values.yaml has no empty image.repository"
            files["interflow/values.yaml"] = File(values.encode())
        self.write(f"helm/interflow-{self.version}.tgz", gz(tar(files, EPOCH)))

    def installers(self):
        address = os.environ.get("BASE_URL", "").rstrip("/")
        if not address:
            print("left out: install.sh, Homebrew's formula and winget's manifests, which need BASE_URL, the address of the folder that will hold the archives")
            return
        key = ""
        if self.signed:
            with tempfile.TemporaryDirectory() as folder:
                self.minisign("-R", "-p", f"{folder}/key.pub")
                key = read(f"{folder}/key.pub").decode().split("\n")[1]
            self.write("minisign.pub", f"untrusted comment: Interflow's releases\n{key}\n".encode())
        values = {"VERSION": self.version, "BASE_URL": address, "PUBLIC_KEY": key, "WINGET_ID": os.environ.get("WINGET_ID", "Interflow.Interflow")}
        for path, text in installers.installers(self.archives, values).items():
            self.write(path, text)

    def sums(self):
        lines = []
        for folder, _, names in os.walk(self.out):
            lines += [(os.path.relpath(os.path.join(folder, name), self.out), os.path.join(folder, name)) for name in names]
        text = "".join(f"{hashlib.sha256(read(path)).hexdigest()}  {name}\n" for name, path in sorted(lines))
        self.write("SHA256SUMS", text.encode())
        print(*(f"{os.path.getsize(path):>10}  {name}" for name, path in sorted(lines)), sep="\n")
        if self.signed:
            # The comment is signed, too; the usual one has the time.
            self.minisign("-S", "-m", f"{self.out}/SHA256SUMS", "-t", f"Interflow {self.version}")
        else:
            print("not signed: set MINISIGN_KEY to the file of the maintainer's secret key")

    def minisign(self, *arguments):
        password = os.environ.get("MINISIGN_PASSWORD", "")
        done = subprocess.run(["minisign", *arguments, "-s", self.signed], input=password + "\n", capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"minisign: {done.stderr.strip()}")


main(*sys.argv[1:])
