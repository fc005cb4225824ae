"""Checks the compose file: what its services refer to exists, and the binary, if it is built, accepts the replicas' variables."""

import os
import subprocess
import sys
import tempfile

import yaml

PATH, BINARY = sys.argv[1], os.path.abspath(sys.argv[2])
# Those of the image, see the Containerfile, are not in the file.
SECRETS = {"INTERFLOW_TOKEN": "x" * 40, "REDACT_SECRET": "x" * 40, "POSTGRES_PASSWORD": "x", "S3_PASSWORD": "x"}


def check(condition, what):
    if not condition:
        sys.exit(f"{PATH}: {what}")


def names(value):
    return list(value or [])


def substituted(text):
    """As compose replaces `${NAME:?why}`."""
    for name, value in SECRETS.items():
        start = text.find("${" + name + ":?")
        if start >= 0:
            text = text[:start] + value + text[text.index("}", start) + 1:]
    check("${" not in text, f"{text}: unknown secret")
    return text


def references(file):
    services = file["services"]
    for name, service in services.items():
        for other in names(service.get("depends_on")):
            check(other in services, f"{name} depends on {other}, which is not a service")
            condition = service["depends_on"][other]["condition"] if isinstance(service["depends_on"], dict) else "service_started"
            check(condition != "service_healthy" or "healthcheck" in services[other], f"{other} has no healthcheck")
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            here = os.path.join(os.path.dirname(PATH), source)
            check(source in file["volumes"] or (source[0] == "." and os.path.exists(here)), f"{name}: no volume {source}")
        for network in names(service.get("networks")):
            check(network in file["networks"], f"{name}: no network {network}")
        for port in service.get("ports", []):
            check(port.startswith("127.0.0.1:"), f"{name} publishes {port} to everybody")
    data = [v.split(":")[0] for n, s in services.items() if n.startswith("interflow-") for v in s["volumes"] if v.endswith(":/data")]
    check(len(data) == len(set(data)) == 2, f"two replicas have a volume each, not {data}")


def variables(service):
    with tempfile.TemporaryDirectory() as folder:
        env = {k: substituted(str(v)) for k, v in service["environment"].items()}
        env |= {"PATH": os.environ["PATH"], "HOME": folder, "INTERFLOW_DATA_DIR": folder}
        output = subprocess.run([BINARY, "config", "check", "--values-only"], env=env, cwd=folder, capture_output=True, text=True)
        check(output.returncode == 0, f"the binary refuses the variables: {output.stderr}")
        check("environment variable" not in output.stderr, output.stderr)


with open(PATH) as f:
    compose = yaml.safe_load(f)
references(compose)
built = os.path.exists(BINARY)
if built:
    variables(compose["services"]["interflow-1"])
print("compose file: ok" + ("" if built else "; without the binary, which is not built"))
