"""Checks the compose files: what their services refer to exists, `.env.example` has their variables, and the binary, if it is built,
accepts those of Interflow. The file with one service is that of one instance, the other that of two replicas."""

import os
import re
import subprocess
import sys
import tempfile

import yaml

BINARY, PATHS = os.path.abspath(sys.argv[1]), sys.argv[2:]
EXAMPLE = os.path.join(os.path.dirname(PATHS[0]), ".env.example")
VARIABLE = re.compile(r"\$\{(\w+)(:[-?])([^}]*)\}")
at = ""


def check(condition, what):
    if not condition:
        sys.exit(f"{at}: {what}")


def names(value):
    return list(value or [])


def substituted(text):
    """As compose replaces `${NAME:?why}`, by a secret, and `${NAME:-default}`, by the default."""
    return VARIABLE.sub(lambda m: "x" * 40 if m[2] == ":?" else m[3], text)


def references(path, file):
    services = file["services"]
    for name, service in services.items():
        for other in names(service.get("depends_on")):
            check(other in services, f"{name} depends on {other}, which is not a service")
            condition = service["depends_on"][other]["condition"] if isinstance(service["depends_on"], dict) else "service_started"
            check(condition != "service_healthy" or "healthcheck" in services[other], f"{other} has no healthcheck")
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            here = os.path.join(os.path.dirname(path), source)
            check(source in file["volumes"] or (source[0] == "." and os.path.exists(here)), f"{name}: no volume {source}")
        for network in names(service.get("networks")):
            check(network in file["networks"], f"{name}: no network {network}")
        for port in service.get("ports", []):
            check(port.startswith("127.0.0.1:"), f"{name} publishes {port} to everybody")
        if service["image"].startswith("${INTERFLOW_IMAGE"):
            # The image has this program only.
            command = service.get("entrypoint", ["/usr/local/bin/interflow"])
            check(command[0] == "/usr/local/bin/interflow", f"{name} runs {command}, which the image may not have")
            check(os.path.exists(os.path.join(os.path.dirname(path), service["build"]["context"], service["build"]["dockerfile"])), f"{name}: no Containerfile")
    instances = {n: s for n, s in services.items() if n.startswith("interflow")}
    check(len(instances) == (1 if len(services) == 1 else 2), f"instances: {list(instances)}")
    data = [v.split(":")[0] for s in instances.values() for v in s["volumes"] if v.endswith(":/data")]
    check(len(data) == len(set(data)) == len(instances), f"each instance has a volume of its own, not {data}")
    published = [port.rsplit(":", 1)[1] for s in services.values() for port in s.get("ports", [])]
    check(published == ["7070", "7071", "7072"], f"published: {published}")
    if len(services) == 1:
        check(services["interflow"]["healthcheck"]["test"][1:] == ["/usr/local/bin/interflow", "status"], "the healthcheck asks something else")
    return next(iter(instances.values()))


def variables(service):
    with tempfile.TemporaryDirectory() as folder:
        env = {k: substituted(str(v)) for k, v in service["environment"].items()}
        env |= {"PATH": os.environ["PATH"], "HOME": folder, "INTERFLOW_DATA_DIR": folder}
        output = subprocess.run([BINARY, "config", "check", "--values-only"], env=env, cwd=folder, capture_output=True, text=True)
        check(output.returncode == 0, f"the binary refuses the variables: {output.stderr}")
        check("environment variable" not in output.stderr, output.stderr)


used = set()
built = os.path.exists(BINARY)
for at in PATHS:
    with open(at) as f:
        text = f.read()
    used |= {m[0] for m in VARIABLE.findall(text)}
    check(len(re.findall(r"\$\{", text)) == len(VARIABLE.findall(text)), "a variable with neither a default nor a reason")
    service = references(at, yaml.safe_load(text))
    if built:
        variables(service)
at = EXAMPLE
with open(EXAMPLE) as f:
    named = set(re.findall(r"(?m)^(\w+)=$", f.read()))
check(named == used, f"names {sorted(named)}, the compose files have {sorted(used)}")
print("compose files: ok" + ("" if built else "; without the binary, which is not built"))
