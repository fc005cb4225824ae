"""An OCI image (image-spec 1.1) without a container engine: the binary, certificates of authorities, and an account, on nothing.

Its configuration is that of the last stage of the Containerfile. The archive is an OCI layout, with the manifest by which older
versions of `docker load` read it.
"""

import hashlib
import json
import re
import shlex
import time

from archives import File, Folder, gz, tar

USER = 7070
TYPES = "application/vnd.oci.image"
SECONDS = {"ms": 0.001, "s": 1, "m": 60}


def containerfile(path):
    """The instructions of the last stage that configure an image."""
    with open(path) as f:
        text = re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", f.read()))
    config = {"Env": [], "Labels": {}, "ExposedPorts": {}, "Volumes": {}}
    for line in text[text.rindex("\nFROM ") :].split("\n"):
        word, _, rest = line.strip().partition(" ")
        if word == "ENV":
            config["Env"] += shlex.split(rest)
        elif word == "LABEL":
            config["Labels"] |= dict(pair.split("=", 1) for pair in shlex.split(rest))
        elif word == "EXPOSE":
            config["ExposedPorts"] |= {f"{port}/tcp": {} for port in rest.split()}
        elif word == "VOLUME":
            config["Volumes"] |= {volume: {} for volume in rest.split()}
        elif word in ("ENTRYPOINT", "CMD"):
            config[word.capitalize()] = json.loads(rest)
        elif word == "USER":
            config["User"] = rest
        elif word == "STOPSIGNAL":
            config["StopSignal"] = rest
        elif word == "HEALTHCHECK":
            options, command = rest.split(" CMD ")
            spans = dict(option.removeprefix("--").split("=") for option in options.split())
            spans = {name: int(float(re.match(r"[\d.]+", span)[0]) * SECONDS[span.lstrip("0123456789.")] * 1e9) for name, span in spans.items()}
            config["Healthcheck"] = {
                "Test": ["CMD", *json.loads(command)],
                **{"".join(part.capitalize() for part in name.split("-")): span for name, span in spans.items()},
            }
    config["Env"].insert(0, "PATH=/usr/local/bin")
    return config


def image(binary, certificates, architecture, version, epoch):
    """The archive of the image `interflow:VERSION`."""
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))
    base = {
        "etc/passwd": File(f"root:x:0:0:root:/:/sbin/nologin\ninterflow:x:{USER}:{USER}::/data:/sbin/nologin\n".encode()),
        "etc/group": File(f"root:x:0:\ninterflow:x:{USER}:\n".encode()),
        "etc/ssl/certs/ca-certificates.crt": File(certificates),
        "data": Folder(0o700, USER),
        "tmp": Folder(0o1777),
    }
    blobs, layers, digests = {}, [], []

    def add(data, media_type, **more):
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = File(data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data), **more}

    for tree in (base, {"usr/local/bin/interflow": File(binary, 0o755)}):
        content = tar(tree, epoch)
        digests.append("sha256:" + hashlib.sha256(content).hexdigest())
        layers.append(add(gz(content), f"{TYPES}.layer.v1.tar+gzip"))
    settings = containerfile("deploy/container/Containerfile")
    settings["Labels"]["org.opencontainers.image.version"] = version
    config = {
        "created": created,
        "architecture": architecture,
        "os": "linux",
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": digests},
        "history": [{"created": created, "created_by": "interflow: " + what} for what in ("account, certificates, folders", "binary")],
    }
    encode = lambda value: json.dumps(value, sort_keys=True).encode()
    config = add(encode(config), f"{TYPES}.config.v1+json")
    manifest = {"schemaVersion": 2, "mediaType": f"{TYPES}.manifest.v1+json", "config": config, "layers": layers}
    names = {"org.opencontainers.image.ref.name": f"interflow:{version}"}
    manifest = add(encode(manifest), f"{TYPES}.manifest.v1+json", annotations=names, platform={"architecture": architecture, "os": "linux"})
    blob = lambda descriptor: "blobs/" + descriptor["digest"].replace(":", "/")
    docker = [{"Config": blob(config), "RepoTags": [f"interflow:{version}"], "Layers": [blob(layer) for layer in layers]}]
    layout = {
        "oci-layout": File(encode({"imageLayoutVersion": "1.0.0"})),
        "index.json": File(encode({"schemaVersion": 2, "mediaType": f"{TYPES}.index.v1+json", "manifests": [manifest]})),
        "manifest.json": File(encode(docker)),
    }
    return tar(layout | blobs, epoch)
