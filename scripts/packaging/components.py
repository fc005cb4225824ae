"""The crates in a binary: a CycloneDX SBOM, and the texts of their licences."""

import hashlib
import json
import os
import re
import subprocess
import time
import tomllib

LICENCE_FILE = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)([-._].*)?$", re.IGNORECASE)


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments, "--locked"], check=True, capture_output=True, text=True).stdout


class Components:
    """The crates that are linked for a target, without build scripts and procedural macros."""

    def __init__(self, target, version):
        self.version = version
        listed = cargo("tree", "-p", "interflow", "--target", target, "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}")
        names = {tuple(line.split()[:2]) for line in listed.splitlines() if line.strip()}
        metadata = json.loads(cargo("metadata", "--format-version", "1", "--filter-platform", target))
        packages = [p for p in metadata["packages"] if (p["name"], "v" + p["version"]) in names]
        self.by_id = {p["id"]: p for p in packages}
        self.crates = sorted((p for p in packages if p["source"]), key=lambda p: (p["name"], p["version"]))
        self.nodes = metadata["resolve"]["nodes"]
        with open("Cargo.lock", "rb") as f:
            self.checksums = {(p["name"], p["version"]): p["checksum"] for p in tomllib.load(f)["package"] if "checksum" in p}

    def sbom(self, epoch):
        purl = lambda p: f"pkg:cargo/{p['name']}@{p['version']}"
        dependencies = {}
        for node in self.nodes:
            if node["id"] in self.by_id:
                normal = [d["pkg"] for d in node["deps"] if any(k["kind"] is None for k in d["dep_kinds"])]
                found = sorted(purl(self.by_id[i]) for i in normal if i in self.by_id)
                dependencies[purl(self.by_id[node["id"]])] = found
        components = [self.component(p, purl(p)) for p in sorted(self.by_id.values(), key=purl) if p["name"] != "interflow"]
        own = {"type": "application", "bom-ref": f"pkg:cargo/interflow@{self.version}", "name": "interflow", "version": self.version}
        bom = {
            "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)), "component": own},
            "components": components,
            "dependencies": [{"ref": ref, "dependsOn": on} for ref, on in sorted(dependencies.items())],
        }
        return (json.dumps(bom, indent=1) + "\n").encode()

    def component(self, package, purl):
        component = {"type": "library", "bom-ref": purl, "name": package["name"], "version": package["version"], "purl": purl}
        if package["license"]:
            # Some manifests have the form that came before SPDX expressions: `MIT/Apache-2.0`.
            component["licenses"] = [{"expression": re.sub(r"\s*/\s*", " OR ", package["license"])}]
        if checksum := self.checksums.get((package["name"], package["version"])):
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        if package["repository"]:
            component["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
        return component

    def licences(self):
        """Each text once, after the crates that have it. Those without a file are under the licences that end the list."""
        users, texts, without = {}, {}, []
        files = {package["id"]: list(licence_files(package)) for package in self.crates}
        # Some crates of a repository leave the file to others.
        of_repository = {p["repository"]: files[p["id"]] for p in self.crates if p["repository"] and files[p["id"]]}
        for package in self.crates:
            found = files[package["id"]] or of_repository.get(package["repository"], [])
            for text in found:
                digest = hashlib.sha256(" ".join(text.split()).encode()).hexdigest()
                texts.setdefault(digest, text)
                users.setdefault(digest, []).append(package)
            if not found:
                without.append(package)
        line = lambda p: f"  {p['name']} {p['version']} ({p['license']})" + (f"  {p['repository']}" if p["repository"] else "")
        out = ["Licences of the software in the Interflow binary", "=" * 48, ""]
        for digest, packages in users.items():
            out += ["Used by:", *map(line, packages), "", texts[digest].strip("\n"), "", "-" * 78, ""]
        if without:
            out += ["Without a file of their own, under the licences that their manifests name; the texts of", "MIT and Apache-2.0 are those of Interflow (LICENSE-MIT, LICENSE-APACHE):", *map(line, without), ""]
        return "\n".join(out).encode()


def licence_files(package):
    folder = os.path.dirname(package["manifest_path"])
    names = [name for name in sorted(os.listdir(folder)) if LICENCE_FILE.match(name) and os.path.isfile(os.path.join(folder, name))]
    named = package["license_file"]
    if named and named not in names:
        names.append(named)
    for name in names:
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as f:
            yield f.read().replace("\r\n", "\n")
