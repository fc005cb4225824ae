"""Installs the chart in the cluster that `run` started, as docs/tutorials/8-kubernetes.md says, and checks what it promises there."""

import http.client
import json
import os
import re
import secrets
import signal
import ssl
import subprocess
import sys
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ROOT, DIR, ADDRESS = sys.argv[1:4]
CHART = os.path.join(ROOT, "deploy/helm/interflow")
IMAGE = {"repository": "interflow.test/interflow", "tag": "1", "pullPolicy": "Never"}
TOKEN = secrets.token_hex(32)
NAMESPACE = "interflow"
PROXY, GATEWAY, ADMIN = 7070, 7071, 7072
# A pod with the server's own start, and everything on two cores.
PATIENCE = 180
passed, failed = [], []


class Failure(Exception):
    """What a case found."""


def need(condition, what):
    if not condition:
        raise Failure(what)


def run(*command, stdin=None, ok=True, timeout=300):
    output = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout)
    if ok and output.returncode != 0:
        raise Failure(f"{' '.join(command[:6])}: {(output.stderr or output.stdout).strip()[-1500:]}")
    return output


def kubectl(*arguments, namespace=NAMESPACE, **options):
    return run("kubectl", "-n", namespace, *arguments, **options)


def get(kind, name=None, namespace=NAMESPACE, **options):
    return json.loads(kubectl("get", kind, *([name] if name else []), "-o", "json", *(["-l", options["label"]] if "label" in options else []),
                              namespace=namespace).stdout)


def apply(*manifests):
    run("kubectl", "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)}))


def inside(pod, *command, namespace=NAMESPACE, **options):
    return kubectl("exec", pod, "--", *command, namespace=namespace, **options)


def until(what, condition, seconds=PATIENCE):
    deadline = time.monotonic() + seconds
    while True:
        try:
            value = condition()
        except (Failure, OSError, KeyError):
            value = None
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failure(f"not within {seconds} s: {what}")
        time.sleep(0.3)


def case(function):
    """Runs a case at once; what it returns is added to its line."""
    name = function.__doc__
    started = time.monotonic()
    try:
        detail = function()
        passed.append(name)
        print(f"ok   {name}{': ' + detail if detail else ''} ({time.monotonic() - started:.0f} s)", flush=True)
    except Exception as e:  # Whatever went wrong is what the case found.
        failed.append(function.__name__)
        print(f"FAIL {name}: {e if isinstance(e, Failure) else traceback.format_exc()}", flush=True)


# What clients ask for.


class Origin(BaseHTTPRequestHandler):
    """A page, and a provider of Chat Completions."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, kind, body):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path.startswith("/slow"):
            # An answer of eight seconds, longer than a pod waits before it stops to accept.
            self.send_response(200)
            self.send_header("Content-Length", "33")
            self.end_headers()
            for _ in range(32):
                self.wfile.write(b".")
                time.sleep(0.25)
            self.wfile.write(b"\n")
            return
        # Long enough to be in the bucket.
        self.answer("text/plain", f"the page {self.path}\n".encode() + os.urandom(4096).hex().encode())

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        need(self.headers["Authorization"] == "Bearer provider-key", "the provider's key")
        self.answer("application/json", json.dumps({
            "id": "1", "object": "chat.completion", "model": "gpt-4o",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}}).encode())


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, *_):
        # Pods are killed in the middle of an answer.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            traceback.print_exc()


def serve():
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=origin.test",
        "-addext", "subjectAltName=DNS:origin.test", "-keyout", "origin.key", "-out", "origin.pem")
    plain, tls = Server((ADDRESS, 8000), Origin), Server((ADDRESS, 8443), Origin)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("origin.pem", "origin.key")
    tls.socket = context.wrap_socket(tls.socket, server_side=True, do_handshake_on_connect=False)
    for server in (plain, tls):
        threading.Thread(target=server.serve_forever, daemon=True).start()


class Load:
    """Clients that ask for pages until `stop`: over connections that are kept, over new ones, in intercepted TLS, and for answers of some seconds."""

    def __init__(self, service, kinds=("kept", "kept", "new", "new", "tls", "tls-new", "slow", "slow")):
        self.service = service
        self.name = secrets.token_hex(4)
        self.done, self.errors, self.repeated = [], [], 0
        self.over = threading.Event()
        self.context = ssl.create_default_context(cafile="interflow-ca.pem")
        self.threads = [threading.Thread(target=self.client, args=(kind, i), daemon=True) for i, kind in enumerate(kinds)]
        for thread in self.threads:
            thread.start()

    def connect(self, kind):
        if kind.startswith("tls"):
            connection = http.client.HTTPSConnection(self.service, PROXY, timeout=30, context=self.context)
            connection.set_tunnel("origin.test", 8443)
            return connection, ""
        return http.client.HTTPConnection(self.service, PROXY, timeout=30), "http://origin.test:8000"

    def client(self, kind, index):
        connection, number = None, 0
        while not self.over.is_set():
            number += 1
            path = f"{'/slow' if kind == 'slow' else ''}/load-{self.name}/{index}-{number}"
            reused = connection is not None
            try:
                while True:
                    if connection is None:
                        connection, prefix = self.connect(kind)
                    try:
                        connection.request("GET", prefix + path, headers={"Host": "origin.test"})
                        response = connection.getresponse()
                        break
                    except (ConnectionError, BrokenPipeError):
                        # As clients do: a kept connection that was closed meanwhile says nothing about the request.
                        connection.close()
                        connection = None
                        if not reused:
                            raise
                        reused = False
                        self.repeated += 1
                body = response.read()
                if response.status != 200 or body != b"." * 32 + b"\n" if kind == "slow" else f"the page {path}\n".encode() not in body:
                    raise Failure(f"status {response.status}: {body[:200]}")
                self.done.append((path.removeprefix("/slow"), time.time()))
                if kind.endswith("new") or response.getheader("Connection") == "close":
                    connection.close()
                    connection = None
            except (OSError, http.client.HTTPException, Failure) as e:
                self.errors.append((time.time(), f"{kind}: {e!r}"))
                if connection:
                    connection.close()
                connection = None
            time.sleep(0.02)

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join(40)
        return self

    def spotless(self):
        need(len(self.done) > 50, f"only {len(self.done)} requests")
        need(not self.errors, f"{len(self.errors)} of {len(self.done) + len(self.errors)} requests failed: {[e for _, e in self.errors[:4]]}")
        missing = self.missing()
        need(not missing, f"{len(missing)} of {len(self.done)} flows are not recorded")
        return f"{len(self.done)} requests, none failed, {self.repeated} repeated on a new connection, all recorded"

    def missing(self):
        """Requests that were answered and are not recorded."""
        paths = {path for path, _ in self.done}

        def recorded():
            found, after = set(), ""
            while True:
                page = api(f"flows?query=url:load-{self.name}&limit=1000{after}")
                found |= {re.sub(r"^.*(?=/load-)", "", f.get("path", "")) for f in page["flows"]}
                if not page.get("next"):
                    return found
                after = f"&after={page['next']}"
        deadline = time.monotonic() + 30
        while (missing := paths - recorded()) and time.monotonic() < deadline:
            time.sleep(1)
        return [(path, at) for path, at in self.done if path in missing]


def ask(host, path, token=TOKEN, name=None, port=ADMIN):
    connection = http.client.HTTPConnection(host, port, timeout=15)
    try:
        connection.request("GET", path, headers={**({"Authorization": f"Bearer {token}"} if token else {}), **({"Host": name} if name else {})})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def api(path, host=None):
    status, body = ask(host or services["interflow-admin"], f"/api/v1/{path}", name=None if host else "interflow-admin")
    need(status == 200, f"{path}: {status} {body[:300]}")
    return json.loads(body)


services = {}


def pods(release=NAMESPACE):
    found = get("pods", label=f"app.kubernetes.io/instance={release}")["items"]
    return sorted((p for p in found), key=lambda p: p["metadata"]["name"])


def ready(pod):
    return "deletionTimestamp" not in pod["metadata"] and any(
        c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))


def all_ready(count, release=NAMESPACE):
    found = pods(release)
    return found if len(found) == count and all(ready(p) for p in found) else None


def find_services():
    for service in get("services")["items"]:
        services[service["metadata"]["name"]] = service["spec"]["clusterIP"]


def helm(*arguments, **options):
    return run("helm", "-n", NAMESPACE, *arguments, **options)


def process(uid):
    """The process of Interflow in the pod of this id."""
    for folder in os.listdir("/proc"):
        try:
            with open(f"/proc/{folder}/cgroup") as f, open(f"/proc/{folder}/comm") as name:
                if uid in f.read() and name.read() == "interflow\n":
                    return int(folder)
        except (OSError, ValueError):
            continue
    raise Failure(f"no process of the pod {uid}")


def values(name, content):
    with open(name, "w") as f:
        json.dump(content, f)
    return name


def from_the_tutorial(name):
    """A file of values in docs/tutorials/8-kubernetes.md."""
    with open(os.path.join(ROOT, "docs/tutorials/8-kubernetes.md")) as f:
        text = re.search(rf"^```yaml {re.escape(name)}\n(.*?)^```", f.read(), re.S | re.M)[1]
    with open(name, "w") as f:
        f.write(text)
    return name


def secret(name, namespace=NAMESPACE, **content):
    apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "stringData": content})


CONFIG = """
[access]
deny_private = true
allow_private = ["ADDRESS/32"]

[upstream]
extra_ca = ["/etc/origin-ca/ca.pem"]

[llm.provider.openai]
url = "http://origin.test:8000"
api_key = "env:OPENAI_API_KEY"

[keys]
require_virtual_key = true

[record]
retention_age = "7d"

[log]
format = "json"
""".replace("ADDRESS", ADDRESS)
OTHER_CONFIG = CONFIG.replace('"7d"', '"6d"')


def fleet_values(**more):
    return values("fleet.json", {
        "image": IMAGE, "replicas": 3, "config": CONFIG,
        "caSecret": "interflow-ca", "adminTokenSecret": "interflow-token", "redactSecret": "interflow-redact", "redisSecret": "interflow-redis",
        "storeSecret": "interflow-postgres", "objects": "s3://recordings/interflow",
        "envFrom": [{"secretRef": {"name": "llm-keys"}}, {"secretRef": {"name": "bucket"}}],
        "extraVolumes": [{"name": "origin-ca", "configMap": {"name": "origin-ca"}}],
        "extraVolumeMounts": [{"name": "origin-ca", "mountPath": "/etc/origin-ca", "readOnly": True}],
        "persistence": {"storageClass": "standard", "size": "1Gi"},
        "networkPolicy": {"enabled": True, "admins": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]},
        "ingress": {"enabled": True, "className": "nginx", "hosts": ["llm.example.com"], "tls": [{"hosts": ["llm.example.com"], "secretName": "llm-tls"}]},
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}},
        **more})


def prepare():
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}},
          {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "work"}},
          {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {
              "name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
           "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"})
    for number in range(8):
        # Of root, so that the pod's fsGroup is what makes it writable.
        path = os.path.join(DIR, "volumes", str(number))
        os.makedirs(path, mode=0o755)
        apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"volume-{number}"}, "spec": {
            "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "standard", "local": {"path": path},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node"]}]}]}}}})
    until("the account of the namespace", lambda: kubectl("get", "serviceaccount", "default", namespace="work"))
    apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "client", "namespace": "work"}, "spec": {
        "terminationGracePeriodSeconds": 0, "containers": [{"name": "client", "image": "interflow.test/client:1", "imagePullPolicy": "Never"}]}})
    kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=90s", namespace="work")
    # As the tutorial makes them.
    run(os.environ["BINARY"], "ca", "create", "ca")
    kubectl("create", "secret", "tls", "interflow-ca", "--cert", "ca/ca.pem", "--key", "ca/ca.key")
    secret("interflow-token", token=TOKEN)
    secret("interflow-redact", secret=secrets.token_hex(32))
    secret("interflow-redis", url="redis://redis.test:6379")
    secret("interflow-postgres", dsn="postgres://interflow:recording@postgres.test:5432/postgres?sslmode=disable")
    secret("llm-keys", OPENAI_API_KEY="provider-key")
    secret("bucket", AWS_ENDPOINT="http://s3.test:5000", AWS_ALLOW_HTTP="true", AWS_REGION="us-east-1", AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test")
    with open("origin.pem") as f:
        apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "origin-ca", "namespace": NAMESPACE}, "data": {"ca.pem": f.read()}})


def fleet():
    @case
    def install():
        """three replicas with PostgreSQL, Redis, a bucket and Secrets are installed, and become ready, in a namespace of `restricted` pods"""
        output = helm("install", "interflow", CHART, "-f", fleet_values(), "--wait", "--timeout", "180s")
        need("Warning" not in output.stderr and "would violate" not in output.stderr, output.stderr)
        found = all_ready(3)
        need(found, "not all pods are ready")
        need(all(c["restartCount"] == 0 for p in found for c in p["status"]["containerStatuses"]), "a container was restarted")
        find_services()

    if failed:
        for pod in pods():
            log = [kubectl("logs", pod["metadata"]["name"], "--tail=5", *more, ok=False).stdout for more in ((), ("--previous",))]
            print(*log, kubectl("describe", "pod", pod["metadata"]["name"]).stdout[-1500:])
        return

    @case
    def kinds():
        """the API server has the budget, the network policy and the ingress as the chart wrote them"""
        need(get("poddisruptionbudget", "interflow")["status"]["disruptionsAllowed"] == 1, "the budget allows one")
        need(get("ingress", "interflow")["spec"]["rules"][0]["host"] == "llm.example.com", "the host of the ingress")
        need(len(get("networkpolicy", "interflow")["spec"]["ingress"]) == 2, "the policy's rules")

    @case
    def security():
        """the container has user 7070, no capabilities, a root file system that it cannot write, and a volume that it can"""
        for pod in ("interflow-0", "interflow-2"):
            need(inside(pod, "id", "-u").stdout == "7070\n", "another user")
            status = inside(pod, "cat", "/proc/1/status").stdout
            need(re.search(r"CapEff:\s0+\n", status) and re.search(r"CapBnd:\s0+\n", status), "capabilities")
            need("NoNewPrivs:\t1" in status and "Seccomp:\t2" in status, "privileges may grow, or no seccomp profile")
            need(inside(pod, "sh", "-c", "echo x > /x", ok=False).returncode != 0, "the root file system is writable")
            need(inside(pod, "sh", "-c", "echo x > /etc/interflow/x", ok=False).returncode != 0, "the configuration is writable")
            inside(pod, "sh", "-c", "echo x > /tmp/x && ls /data/interflow && echo x > /data/x")
            need(inside(pod, "ls", "/var/run/secrets", ok=False).returncode != 0, "a token of the API server is in the pod")

    @case
    def requests():
        """a pod reaches the proxy by the Service's name, plain and in TLS that is intercepted"""
        certificate = inside("interflow-0", "interflow", "ca", "export").stdout
        with open("interflow-ca.pem", "w") as f:
            f.write(certificate)
        need(inside("interflow-2", "interflow", "ca", "export").stdout == certificate, "replicas have different CAs")
        for name in ("interflow.interflow", "interflow.interflow.svc", "interflow.interflow.svc.cluster.local"):
            page = inside("client", "curl", "-sS", "-x", f"http://{name}:7070", "http://origin.test:8000/from-a-pod", namespace="work").stdout
            need("the page /from-a-pod" in page, f"{name}: {page[:300]}")
        page = kubectl("exec", "-i", "client", "--", "sh", "-c", "cat > /tmp/ca.pem && exec curl -sS --cacert /tmp/ca.pem "
                       "-x http://interflow.interflow.svc:7070 https://origin.test:8443/in-tls", namespace="work", stdin=certificate).stdout
        need("the page /in-tls" in page, page[:300])

    @case
    def private():
        """the cluster's own addresses are refused, with the chart's `deny_private`"""
        status = inside("client", "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-x", "http://interflow.interflow.svc:7070",
                        f"http://{services['interflow-admin']}:7072/livez", namespace="work").stdout
        need(status == "403", f"status {status}")

    @case
    def gateway():
        """a virtual key that one pod adds is accepted at the gateway Service, whichever replica has the request"""
        key = inside("interflow-0", "interflow", "keys", "add", "--id", "search", "--owner", "search-team", "--json").stdout
        key = next(v for v in json.loads(key).values() if isinstance(v, str) and len(v) > 20)
        body = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]})

        def post():
            return inside("client", "curl", "-sS", "-H", f"Authorization: Bearer {key}", "-H", "Content-Type: application/json", "-d", body,
                          "http://interflow.interflow.svc:7071/openai/v1/chat/completions", namespace="work").stdout
        # The others see a change of the settings a moment later.
        until("every answer is the provider's", lambda: all('"hello"' in post() for _ in range(8)), 30)
        status = inside("client", "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Authorization: Bearer wrong", "-d", body,
                        "http://interflow.interflow.svc:7071/openai/v1/chat/completions", namespace="work").stdout
        need(status in ("401", "403"), f"a wrong key: {status}")

    @case
    def shared():
        """every replica shows the flows of all, and names all replicas"""
        load = Load(services["interflow"])
        time.sleep(8)
        load.stop()
        detail = load.spotless()
        count = len(load.done)
        for pod in pods():
            name = pod["metadata"]["name"]
            found = int(inside(name, "interflow", "flows", "count", f"url:load-{load.name}").stdout)
            need(found == count, f"{name} shows {found} of {count} flows")
            rows = json.loads(inside(name, "interflow", "status", "--json").stdout)["instances"]
            names = {r["name"].rsplit("-", 1)[0] for r in rows if not r["silent"]}
            need(names == {"interflow-0", "interflow-1", "interflow-2"}, f"{name} names the replicas {names}")
        return detail

    @case
    def metrics():
        """Prometheus reads the metrics of each pod at its address, and needs the token"""
        for pod in pods():
            status, body = ask(pod["status"]["podIP"], "/metrics")
            need(status == 200 and b"interflow_" in body, f"status {status}: {body[:200]}")
            need(ask(pod["status"]["podIP"], "/metrics", token=None)[0] == 401, "metrics without a token")

    @case
    def names():
        """the names of single pods, of the headless Service, reach their admin port"""
        for number in range(3):
            name = f"interflow-{number}.interflow-pods.interflow.svc"
            status = inside("client", "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-H", f"Authorization: Bearer {TOKEN}",
                            f"http://{name}:7072/api/v1/instances", namespace="work").stdout
            need(status == "200", f"{name}: status {status}")

    @case
    def configurations():
        """replicas of one release report the same configuration"""
        rows = [r for r in api("instances")["instances"] if not r["silent"]]
        need(len(rows) == 3 and len({r["config_digest"] for r in rows}) == 1, f"{[(r['name'], r['config_digest']) for r in rows]}")

    @case
    def restart():
        """`kubectl rollout restart` under load: no request fails, and each is recorded"""
        before = {p["metadata"]["uid"] for p in pods()}
        load = Load(services["interflow"])
        time.sleep(2)
        kubectl("rollout", "restart", "statefulset/interflow")
        kubectl("rollout", "status", "statefulset/interflow", "--timeout=280s")
        time.sleep(2)
        load.stop()
        need(not before & {p["metadata"]["uid"] for p in pods()}, "a pod was not replaced")
        return load.spotless()

    @case
    def upgrade():
        """`helm upgrade` with another configuration rolls the pods under load: no request fails, and it is in effect"""
        before = {p["metadata"]["uid"] for p in pods()}
        load = Load(services["interflow"])
        time.sleep(2)
        helm("upgrade", "interflow", CHART, "-f", fleet_values(config=OTHER_CONFIG),
             "--wait", "--timeout", "280s")
        kubectl("rollout", "status", "statefulset/interflow", "--timeout=10s")
        load.stop()
        need(not before & {p["metadata"]["uid"] for p in pods()}, "a pod was not replaced")
        need("6d" in inside("interflow-1", "cat", "/etc/interflow/interflow.toml").stdout, "the configuration is not there")
        return load.spotless()

    @case
    def killed():
        """`kubectl delete pod --force` under load: each request that was answered is recorded"""
        load = Load(services["interflow"])
        time.sleep(3)
        kubectl("delete", "pod", "interflow-1", "--force", "--grace-period=0")
        last = time.time()
        until("three replicas are ready", lambda: all_ready(3))
        time.sleep(2)
        load.stop()
        late = [e for at, e in load.errors if at > last + 10]
        need(not late, f"requests fail after the pod is gone: {late[:3]}")
        missing = load.missing()
        need(not missing, f"{len(missing)} of {len(load.done)} answered requests are not recorded")
        return f"{len(load.done)} requests were answered, {len(load.errors)} broke with the pod"

    @case
    def crashed():
        """a process that is killed is started again in its pod, and delivers what waited on the volume: each request that was answered"""
        uid = get("pod", "interflow-2")["metadata"]["uid"]
        load = Load(services["interflow"])
        time.sleep(3)
        first = time.time()
        os.kill(process(uid), signal.SIGKILL)
        until("its container is started again", lambda: (s := get("pod", "interflow-2")["status"]["containerStatuses"][0])["restartCount"] == 1 and s["ready"])
        ready_again = time.time()
        time.sleep(3)
        load.stop()
        late = [e for at, e in load.errors if at > ready_again + 2]
        need(not late, f"requests fail afterwards: {late[:3]}")
        missing = load.missing()
        need(not missing, f"{len(missing)} of {len(load.done)} answered requests are not recorded")
        need(get("pod", "interflow-2")["metadata"]["uid"] == uid, "the pod was replaced")
        return f"ready after {ready_again - first:.0f} s, {len(load.done)} requests were answered, {len(load.errors)} failed meanwhile"

    @case
    def hung():
        """a process that hangs is taken out of the Services and started again"""
        uid = get("pod", "interflow-1")["metadata"]["uid"]
        pid = process(uid)
        first = time.time()
        os.kill(pid, signal.SIGSTOP)
        until("it is not ready", lambda: not ready(get("pod", "interflow-1")), 60)
        away = time.time()
        time.sleep(1)
        load = Load(services["interflow"], ("new", "new", "tls-new"))
        until("it is started again", lambda: process(uid) != pid and all_ready(3), 120)
        again = time.time()
        load.stop()
        need(not load.errors, f"requests fail while it is not ready: {load.errors[:3]}")
        return (f"not ready after {away - first:.0f} s, ready again after {again - first:.0f} s, {len(load.done)} requests meanwhile, "
                f"{len(load.missing())} not recorded")

    @case
    def evictions():
        """an eviction is granted, and a second one refused until the budget allows it again"""
        until("the budget allows one", lambda: get("poddisruptionbudget", "interflow")["status"]["disruptionsAllowed"] == 1)

        def evict(pod):
            return run("kubectl", "create", "--raw", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction", "-f", "-", ok=False, stdin=json.dumps(
                {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}}))
        first = evict("interflow-0")
        need(first.returncode == 0, first.stderr)
        second = evict("interflow-1")
        need(second.returncode != 0 and "disruption budget" in second.stderr, f"a second eviction: {second.stdout}{second.stderr}")
        until("three replicas are ready", lambda: all_ready(3))

    @case
    def outage():
        """replicas stay ready and answer while PostgreSQL is away, and deliver the flows afterwards"""
        with open("postgres/postmaster.pid") as f:
            pid = int(f.readline())
        load = Load(services["interflow"], ("kept", "new"))
        os.kill(pid, signal.SIGINT)
        time.sleep(15)
        need(all_ready(3), "a replica is not ready")
        subprocess.Popen([os.path.join(DIR, "start-postgres")])
        time.sleep(3)
        load.stop()
        return load.spotless()

    @case
    def service_links():
        """variables that Kubernetes adds for the Services set no key and stop nobody"""
        pod = pods()[0]["spec"]
        container = {k: pod["containers"][0][k] for k in ("image", "imagePullPolicy", "securityContext")}
        apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "links", "namespace": NAMESPACE}, "spec": {
            "enableServiceLinks": True, "securityContext": pod["securityContext"], "terminationGracePeriodSeconds": 1,
            "containers": [{**container, "name": "interflow", "env": [{"name": "INTERFLOW_DATA_DIR", "value": "/data/own"}],
                            "readinessProbe": {"httpGet": {"path": "/readyz", "port": ADMIN}, "periodSeconds": 1},
                            "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
            "volumes": [{"name": "data", "emptyDir": {}}]}})
        kubectl("wait", "--for=condition=Ready", "pod/links", "--timeout=60s")
        variables = {line.split("=")[0] for line in inside("links", "env").stdout.splitlines() if line.startswith("INTERFLOW_")}
        need({"INTERFLOW_SERVICE_HOST", "INTERFLOW_PORT", "INTERFLOW_ADMIN_PORT", "INTERFLOW_ADMIN_SERVICE_PORT"} <= variables, f"{variables}")
        log = kubectl("logs", "links").stdout
        need("SERVICE_HOST" not in log and "INTERFLOW_PORT" not in log, log[:500])
        kubectl("delete", "pod", "links")
        return f"{len(variables)} of them"

    @case
    def autoscaling():
        """with `autoscaling.enabled` there is a HorizontalPodAutoscaler, and no replica ends when it is turned on, or at an upgrade"""
        uids = {p["metadata"]["uid"] for p in pods()}
        for minimum in (2, 3):
            helm("upgrade", "interflow", CHART, "-f", fleet_values(config=OTHER_CONFIG, autoscaling={"enabled": True, "minReplicas": minimum}),
                 "--wait", "--timeout", "280s")
            need(get("horizontalpodautoscaler", "interflow")["spec"]["minReplicas"] == minimum, "minReplicas")
            time.sleep(5)
            need({p["metadata"]["uid"] for p in pods()} == uids and all_ready(3), "pods were replaced")

        def scaled():
            conditions = get("horizontalpodautoscaler", "interflow")["status"].get("conditions", [])
            return any(c["type"] == "AbleToScale" and c["status"] == "True" for c in conditions)
        until("the autoscaler finds the StatefulSet", scaled, 40)
        kubectl("scale", "statefulset/interflow", "--replicas=2")
        until("the autoscaler restores its minimum", lambda: all_ready(3), 90)

    @case
    def monitor():
        """a ServiceMonitor without its CRD is refused before anything changes; with it, it is created"""
        revisions = len(json.loads(helm("history", "interflow", "-o", "json").stdout))
        more = fleet_values(config=OTHER_CONFIG, serviceMonitor={"enabled": True})
        refused = helm("upgrade", "interflow", CHART, "-f", more, ok=False)
        need(refused.returncode != 0 and "ServiceMonitor" in refused.stderr and "CRDs" in refused.stderr, refused.stderr)
        need(len(json.loads(helm("history", "interflow", "-o", "json").stdout)) == revisions and all_ready(3), "the release changed")
        apply({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
               "spec": {"group": "monitoring.coreos.com", "scope": "Namespaced",
                        "names": {"plural": "servicemonitors", "singular": "servicemonitor", "kind": "ServiceMonitor"},
                        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
                            "type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}})
        run("kubectl", "wait", "--for=condition=Established", "crd/servicemonitors.monitoring.coreos.com", "--timeout=30s")
        helm("upgrade", "interflow", CHART, "-f", more, "--wait", "--timeout", "280s")
        endpoint = get("servicemonitor", "interflow")["spec"]["endpoints"][0]
        ports = [p["name"] for p in get("service", "interflow-admin")["spec"]["ports"]]
        need(endpoint["port"] in ports, f"the port {endpoint['port']}")

    @case
    def uninstall():
        """`helm uninstall` leaves the volumes of the replicas, and nothing else"""
        helm("uninstall", "interflow", "--wait", "--timeout", "180s")
        until("no pod is left", lambda: not pods(), 90)
        kinds = ("statefulset,service,configmap,serviceaccount,poddisruptionbudget,networkpolicy,ingress,horizontalpodautoscaler,servicemonitor,"
                 "controllerrevision,endpointslice")
        left = get(kinds, label="app.kubernetes.io/instance=interflow")["items"]
        need(not left, f"left: {[(i['kind'], i['metadata']['name']) for i in left]}")
        claims = [c["metadata"]["name"] for c in get("persistentvolumeclaims")["items"]]
        need(claims == ["data-interflow-0", "data-interflow-1", "data-interflow-2"], f"{claims}")
        kubectl("delete", "persistentvolumeclaim", "--all")


def single():
    @case
    def tutorial():
        """one replica as in the tutorial: no Secret of its own, a key, the page by `kubectl port-forward`"""
        file = from_the_tutorial("llm-values.yaml")
        more = values("single.json", {"image": IMAGE, "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}}})
        notes = helm("install", "interflow", CHART, "-f", file, "-f", more).stdout
        kubectl("rollout", "status", "statefulset/interflow", "--timeout=120s")
        find_services()
        need(not get("poddisruptionbudgets")["items"], "a budget for one replica")
        inside("interflow-0", "interflow", "keys", "add", "--id", "search", "--owner", "search-team", "--money-per-day", "20")
        need("BEGIN CERTIFICATE" in inside("interflow-0", "interflow", "ca", "export").stdout, "no CA")
        forward = subprocess.Popen(["kubectl", "-n", NAMESPACE, "port-forward", "service/interflow-admin", "7072"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            until("the port is forwarded", lambda: ask("127.0.0.1", "/readyz", token=None)[0] == 200, 20)
            page = inside("interflow-0", "interflow", "open", "--print").stdout.strip()
            path = re.sub(r"^https?://[^/]*", "", page)
            status, _ = ask("127.0.0.1", path, token=None)
            need(status in (200, 302, 303), f"{page}: status {status}")
        finally:
            forward.kill()
        need("interflow.interflow.svc:7071" in notes, notes)
        return page.replace(path, "/…")

    @case
    def kept():
        """a pod that is deleted comes back with its CA, its keys and its recording"""
        before = inside("interflow-0", "interflow", "ca", "export").stdout
        uid = get("pod", "interflow-0")["metadata"]["uid"]
        kubectl("delete", "pod", "interflow-0")
        until("the pod is back", lambda: (p := all_ready(1)) and p[0]["metadata"]["uid"] != uid)
        need(inside("interflow-0", "interflow", "ca", "export").stdout == before, "another CA")
        need("search" in inside("interflow-0", "interflow", "keys", "list").stdout, "the key is gone")

    @case
    def refused():
        """a configuration that is invalid is named in the state of the pod, and `helm rollback` mends it"""
        broken = values("broken.json", {"image": IMAGE, "config": "[recrod]\nretention_age = 7\n", "resources": {"requests": {"cpu": "20m"}}})
        helm("upgrade", "interflow", CHART, "-f", broken)
        until("the state of the pod names it", lambda: "recrod" in kubectl("describe", "pod", "interflow-0").stdout, 120)
        helm("rollback", "interflow", "1")
        until("the pod is ready", lambda: all_ready(1), 60)

    @case
    def gone():
        """an installation of the same name takes over the volume that `helm uninstall` left"""
        before = inside("interflow-0", "interflow", "ca", "export").stdout
        helm("uninstall", "interflow", "--wait")
        until("no pod is left", lambda: not pods(), 90)
        helm("install", "interflow", CHART, "-f", "llm-values.yaml", "-f", "single.json", "--wait", "--timeout", "120s")
        need(inside("interflow-0", "interflow", "ca", "export").stdout == before, "another CA")
        helm("uninstall", "interflow", "--wait")
        until("no pod is left", lambda: not pods(), 90)
        kubectl("delete", "persistentvolumeclaim", "--all")

    @case
    def users():
        """the egress gateway of the tutorial without a volume, with users of a Secret: only they get through, and only to what is allowed"""
        # The password is `secret`.
        secret("users", users="alice:$2b$04$jGUANqRfrMUwj7sffLZdt.dARtMvOqs3O9znJ15dzgpfcY//pm8xm\n")
        more = values("egress.json", {
            "image": IMAGE, "usersSecret": "users", "persistence": {"enabled": False}, "drain": {"delay": 0, "timeout": 5},
            "serviceAccount": {"create": False}, "extraEnv": [{"name": "INTERFLOW_ACCESS_ALLOW_PRIVATE", "value": f'["{ADDRESS}/32"]'},
                                                              {"name": "INTERFLOW_APPROVALS_PRESETS", "value": "[]"}],
            "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}}})
        notes = helm("install", "egress", CHART, "-f", from_the_tutorial("egress-values.yaml"), "-f", more, "--wait", "--timeout", "120s").stdout
        need("WARNING: persistence is off" in notes, notes)

        def status(*options):
            return inside("client", "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-x", "http://egress.interflow.svc:7070", *options,
                          "http://origin.test:8000/", namespace="work").stdout
        need(status() == "407", "a client without a user is let through")
        need(status("-U", "alice:wrong") == "407", "a wrong password is accepted")
        need(status("-U", "alice:secret") == "403", "a host that no rule allows is reached")
        secret("users", users="")
        helm("uninstall", "egress", "--wait")
        need(not get("persistentvolumeclaims")["items"], "volumes of a release without them")


os.chdir(DIR)
serve()
prepare()
fleet()
if "install" not in failed:
    single()
print(f"{len(passed)} cases passed, {len(failed)} failed")
sys.exit(1 if failed else 0)
