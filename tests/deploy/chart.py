"""Checks the manifests that the chart renders: schemas, references within them, the pod security standard `restricted`, and whether the
binary accepts the configuration and the variables of the container."""

import glob
import os
import re
import subprocess
import sys
import tempfile

import yaml

try:
    import kubernetes_validate
except ImportError:
    kubernetes_validate = None

HELM, CHART, BINARY = sys.argv[1:4]
# Oldest and newest version of Kubernetes that the chart is for.
VERSIONS = ["1.27.0", "1.37.0"]
# Kinds of operators, whose schemas are not Kubernetes' own.
OPERATORS = {"ServiceMonitor"}
failures = []
WITH_IMAGE = ["--set", "image.repository=registry.example.com/interflow"]


def check(condition, what):
    if not condition:
        failures.append(what)


def helm(*arguments):
    return subprocess.run([HELM, *arguments], capture_output=True, text=True)


def template(*arguments):
    return helm("template", "test", CHART, "--namespace", "web", *arguments)


def render(name, *arguments):
    output = template(*arguments)
    check(output.returncode == 0, f"{name}: {output.stderr.strip()}")
    return [m for m in yaml.safe_load_all(output.stdout) if m]


def walk(node):
    yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else []:
        yield from walk(child)


def schemas(name, manifests):
    for manifest in manifests:
        if manifest["kind"] in OPERATORS or kubernetes_validate is None:
            continue
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(manifest, version, strict=True)
            except Exception as e:  # Every failure of the validator is a failure of the manifest.
                message = str(e).splitlines()[0]
                failures.append(f"{name}: {manifest['kind']} {manifest['metadata']['name']}, Kubernetes {version}: {message}")


class Release:
    def __init__(self, name, manifests, values):
        self.name, self.manifests, self.values = name, manifests, values
        [self.workload] = self.kind("StatefulSet")
        self.template = self.workload["spec"]["template"]
        self.pod = self.template["spec"]
        [self.container] = self.pod["containers"]
        self.labels = self.template["metadata"]["labels"]

    def kind(self, kind):
        return [m for m in self.manifests if m["kind"] == kind]

    def check(self, condition, what):
        check(condition, f"{self.name}: {what}")

    def selectors(self):
        matches = lambda selector, labels: selector.items() <= labels.items()
        selectors = {"StatefulSet": self.workload["spec"]["selector"]["matchLabels"]}
        for service in self.kind("Service"):
            selectors[f"Service {service['metadata']['name']}"] = service["spec"]["selector"]
        for kind in ("PodDisruptionBudget", "NetworkPolicy"):
            for m in self.kind(kind):
                selector = m["spec"].get("selector") or m["spec"]["podSelector"]
                selectors[kind] = selector["matchLabels"]
        for constraint in self.pod.get("topologySpreadConstraints", []):
            selectors["topologySpreadConstraints"] = constraint["labelSelector"]["matchLabels"]
        for what, selector in selectors.items():
            self.check(selector and matches(selector, self.labels), f"{what} selects {selector}, the pods have {self.labels}")
        for monitor in self.kind("ServiceMonitor"):
            wanted = monitor["spec"]["selector"]["matchLabels"]
            found = [s for s in self.kind("Service") if matches(wanted, s["metadata"]["labels"])]
            self.check(len(found) == 1, f"the ServiceMonitor selects {len(found)} Services")
            for endpoint in monitor["spec"]["endpoints"]:
                ports = [p["name"] for s in found for p in s["spec"]["ports"]]
                self.check(endpoint["port"] in ports, f"the ServiceMonitor's port {endpoint['port']} is none of {ports}")
        for scaler in self.kind("HorizontalPodAutoscaler"):
            target = scaler["spec"]["scaleTargetRef"]
            found = (target["apiVersion"], target["kind"], target["name"])
            wanted = (self.workload["apiVersion"], "StatefulSet", self.workload["metadata"]["name"])
            self.check(found == wanted, f"the autoscaler's target is {found}")
            self.check("replicas" not in self.workload["spec"], "replicas are set beside an autoscaler, and each upgrade resets them")

    def ports(self):
        names = {p["name"]: p["containerPort"] for p in self.container["ports"]}
        for service in self.kind("Service"):
            for port in service["spec"]["ports"]:
                self.check(port["targetPort"] in names, f"Service {service['metadata']['name']}: no port {port['targetPort']}")
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            self.check(self.container[probe]["httpGet"]["port"] in names, f"{probe}: no such port")
        for policy in self.kind("NetworkPolicy"):
            for rule in policy["spec"]["ingress"]:
                for port in rule["ports"]:
                    self.check(port["port"] in names, f"the NetworkPolicy has no port {port['port']}")
        for ingress in self.kind("Ingress"):
            for rule in ingress["spec"]["rules"]:
                for path in rule["http"]["paths"]:
                    backend = path["backend"]["service"]
                    ports = [p["name"] for s in self.kind("Service") if s["metadata"]["name"] == backend["name"] for p in s["spec"]["ports"]]
                    self.check(backend["port"]["name"] in ports, f"the Ingress's backend {backend} is not a Service's")
                self.check(f'"{rule["host"]}"' in self.env("INTERFLOW_GATEWAY_HOSTS"), f"{rule['host']} is none of gateway.hosts")
        any_address = "[::]" if self.values.get("ipFamily") == "IPv6" else "0.0.0.0"
        for listen in ("PROXY", "GATEWAY", "ADMIN"):
            listens = self.env(f"INTERFLOW_{listen}_LISTEN")
            self.check(f"{any_address}:" in listens, f"INTERFLOW_{listen}_LISTEN is {listens}")
        families = [["IPv6"] if self.values.get("ipFamily") == "IPv6" else None] * len(self.kind("Service"))
        self.check([s["spec"].get("ipFamilies") for s in self.kind("Service")] == families, "not all Services have the family of ipFamily")
        governing = [s for s in self.kind("Service") if s["metadata"]["name"] == self.workload["spec"]["serviceName"]]
        self.check(governing and governing[0]["spec"]["clusterIP"] == "None", "the StatefulSet has no headless Service")

    def env(self, name):
        return next((e.get("value", "") for e in self.container["env"] if e["name"] == name), "")

    def references(self):
        given = {v for v in walk(self.values) if isinstance(v, str)}
        for node in walk(self.manifests):
            if not isinstance(node, dict):
                continue
            for key, name in (("secretKeyRef", "name"), ("secret", "secretName"), ("secretRef", "name"), ("credentials", "name")):
                if isinstance(node.get(key), dict):
                    self.check(node[key].get(name) in given, f"the Secret {node[key].get(name)} is none that the values name")
        secrets = {v for k, v in self.values.items() if k.endswith("Secret") and v}
        self.check(secrets <= {v for v in walk(self.manifests) if isinstance(v, str)}, f"not all of {secrets} are used")
        rendered = {m["metadata"]["name"] for m in self.kind("ConfigMap")}
        volumes = self.pod["volumes"]
        for volume in volumes:
            if "configMap" in volume:
                self.check(volume["configMap"]["name"] in rendered, f"the ConfigMap {volume['configMap']['name']} is not rendered")
        claims = self.workload["spec"].get("volumeClaimTemplates", [])
        names = [v["name"] for v in volumes] + [c["metadata"]["name"] for c in claims]
        mounts = [m["name"] for m in self.container["volumeMounts"]]
        self.check(sorted(names) == sorted(mounts), f"volumes {names}, mounted {mounts}")
        for what in (names, [m["mountPath"] for m in self.container["volumeMounts"]], [e["name"] for e in self.container["env"]]):
            self.check(len(set(what)) == len(what), f"a name is there twice: {what}")
        account = self.pod["serviceAccountName"]
        own = {m["metadata"]["name"] for m in self.kind("ServiceAccount")}
        self.check(account in own | {"default", self.values.get("serviceAccount", {}).get("name")}, f"no ServiceAccount {account}")
        keys = [(m["kind"], m["metadata"]["name"]) for m in self.manifests]
        self.check(len(set(keys)) == len(keys), f"a manifest is there twice: {keys}")

    def security(self):
        pod, own = self.pod["securityContext"], self.container["securityContext"]
        self.check(pod["runAsNonRoot"] is True and pod["runAsUser"] > 0, "the container may be root")
        self.check(pod["seccompProfile"]["type"] == "RuntimeDefault", "no seccomp profile")
        self.check(own["allowPrivilegeEscalation"] is False and own["capabilities"]["drop"] == ["ALL"], "privileges are not dropped")
        self.check(own["readOnlyRootFilesystem"] is True, "the root file system can be written")
        self.check(self.pod["automountServiceAccountToken"] is False, "the pod has an account's token")
        self.check(self.pod["enableServiceLinks"] is False, "Services become variables")
        for node in walk(self.manifests):
            self.check(not (isinstance(node, dict) and node.get("hostPath")), "a path of the node is mounted")

    def drain(self):
        seconds = lambda name: int(self.env(name).removesuffix("s"))
        needed = seconds("INTERFLOW_PROXY_DRAIN_DELAY") + seconds("INTERFLOW_PROXY_DRAIN_TIMEOUT")
        # The image has no shell and no other program.
        self.check("lifecycle" not in self.container, "a hook runs a program that the image lacks")
        grace = self.pod["terminationGracePeriodSeconds"]
        self.check(grace >= needed + 5, f"the pod is killed after {grace} s, and needs {needed} s and the time to write")

    def binary(self, program):
        """`config check` with the container's variables, and those of Services although enableServiceLinks is off."""
        with tempfile.TemporaryDirectory() as folder:
            env = {"PATH": os.environ["PATH"], "HOME": folder, "INTERFLOW_PORT": "tcp://10.0.0.1:7070", "INTERFLOW_SERVICE_HOST": "10.0.0.1",
                   "INTERFLOW_ADMIN_SERVICE_HOST": "10.0.0.2", "INTERFLOW_ADMIN_PORT_7072_TCP_ADDR": "10.0.0.2"}
            files = Secrets(folder)
            for variable in self.container["env"]:
                name = variable["name"]
                env[name] = files.value(variable["value"]) if "value" in variable else Secrets.VARIABLES.get(name, "x" * 40)
                # As Kubernetes replaces variables that come before.
                env[name] = re.sub(r"\$\((\w+)\)", lambda m: env[m[1]], env[name])
            for source in self.container.get("envFrom", []):
                env["OPENAI_API_KEY"] = "sk-x"
            env["INTERFLOW_DATA_DIR"] = os.path.join(folder, "data")
            config = os.path.join(folder, "interflow.toml")
            with open(config, "w") as file:
                file.write(self.kind("ConfigMap")[0]["data"]["interflow.toml"])
            output = subprocess.run([program, "-c", config, "config", "check", "--values-only"], capture_output=True, text=True, env=env, cwd=folder)
            self.check(output.returncode == 0, f"the binary refuses the configuration: {output.stderr.strip()}")
            ignored = re.findall(r"environment variable (\S+)", output.stderr)
            self.check(not ignored, f"the binary does not know {ignored}")


class Secrets:
    """Contents of the Secrets that the values name."""

    VARIABLES = {
        "INTERFLOW_RECORD_STORE": "postgres://interflow:secret@postgres.db.svc/interflow",
        "INTERFLOW_QUOTA_SHARED_REDIS": "redis://redis.db.svc:6379",
    }

    def __init__(self, folder):
        self.folder = folder
        for name, text in (("users", ""), ("keys.toml", ""), ("tls.crt", ""), ("tls.key", "")):
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)

    def value(self, text):
        # A file in the container is one in the folder.
        return re.sub(r"/etc/interflow-\w+/", self.folder + "/", text)


def refused(*arguments, because):
    output = template(*WITH_IMAGE, *arguments)
    check(output.returncode != 0, f"{' '.join(arguments)} is not refused")
    check(because in output.stderr, f"{' '.join(arguments)}: {output.stderr.strip()}")


def main():
    lint = helm("lint", "--quiet", "--strict", CHART)
    check(lint.returncode == 0, lint.stdout + lint.stderr)
    program = next((p for p in (BINARY, "target/debug/interflow", "target/release/interflow") if p and os.path.exists(p)), None)
    here = os.path.dirname(__file__)
    sets = [("defaults", None)] + [(os.path.basename(p), p) for p in sorted(glob.glob(f"{here}/values/*.yaml"))]
    count = 0
    for name, path in sets:
        values = {}
        if path:
            with open(path) as file:
                values = yaml.safe_load(file)
        manifests = render(name, *(["-f", path] if path else WITH_IMAGE))
        if not manifests:
            continue
        count += len(manifests)
        schemas(name, manifests)
        release = Release(name, manifests, values)
        for step in (release.selectors, release.ports, release.references, release.security, release.drain):
            try:
                step()
            except (KeyError, TypeError) as missing:
                failures.append(f"{name}: {step.__name__}: {missing!r} is missing")
        if program:
            release.binary(os.path.abspath(program))
        if name == "everything.yaml":
            kinds = {m["kind"] for m in manifests}
            wanted = {"HorizontalPodAutoscaler", "PodDisruptionBudget", "NetworkPolicy", "ServiceMonitor", "Ingress", "ServiceAccount"}
            check(wanted <= kinds, f"{name}: not rendered: {wanted - kinds}")
            with open(f"{CHART}/values.yaml") as file:
                defaults = yaml.safe_load(file)
            left = sorted(k for k in defaults if k not in values and k not in ("replicas", "keysSecret"))
            check(not left, f"{name} does not set {left}")
    # Unknown values, impossible ones, and those that lack their other half.
    refused("--set", "image.repository=", because="image.repository is not set")
    refused("--set", "replica=2", because="Additional property replica is not allowed")
    refused("--set", "ports.proxy=70000", because="ports.proxy")
    refused("--set", "replicas=2", because="caSecret")
    refused("--set", "replicas=2,caSecret=c", because="adminTokenSecret")
    refused("--set", "autoscaling.enabled=true", because="caSecret")
    refused("--set", "autoscaling.enabled=true,autoscaling.maxReplicas=1", because="minReplicas")
    refused("--set", "archive=bucket", because="archive")
    refused("--set", "objects=s3://traffic", because="objects needs storeSecret")
    refused("--set", "keysSecret=k,storeSecret=s", because="exclude each other")
    refused("--set", "serviceMonitor.enabled=true", because="adminTokenSecret")
    refused("--set", "ingress.enabled=true", because="ingress.hosts")
    for failure in failures:
        print(f"Helm chart: {failure}", file=sys.stderr)
    if failures:
        sys.exit(1)
    skipped = "" if kubernetes_validate else "; without Kubernetes' schemas"
    skipped += "" if program else "; without the binary, which is not built"
    print(f"Helm chart: ok, {count} manifests of {len(sets)} sets of values{skipped}")


main()
