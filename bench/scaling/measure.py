"""What one request costs the servers that replicas share: Redis (limits) and PostgreSQL (the recording), and how many bytes a flow has there.

    bench/scaling/measure.py            # starts a fleet (scripts/fleet) and writes bench/results/fleet-costs.json

Costs are CPU time of the servers' processes per request, from Redis's INFO and /proc, so they hold although generator, replicas and servers
share the machine; rates and latencies would not, and are not measured. The replicas' own cost is in bench/results/mitm.json and llm-gateway.json."""

import glob
import http.client
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RESULT = os.path.join(ROOT, "bench/results/fleet-costs.json")
REQUESTS = int(os.environ.get("REQUESTS", "6000"))
CLIENTS = 8
BODY_BYTES = 8192
TICK = os.sysconf("SC_CLK_TCK")


class Origin(BaseHTTPRequestHandler):
    """A page of 8 KiB that does not compress, another one for each request; and a provider of Chat Completions."""

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
        self.answer("application/octet-stream", os.urandom(BODY_BYTES))

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer("application/json", json.dumps({
            "id": "1", "object": "chat.completion", "model": "gpt-4o",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}}).encode())


def serve():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def load(count, request):
    """`count` requests by CLIENTS clients; each connection is kept. Fails when one is not answered with 200."""
    failures = []

    def client():
        connection = None
        for _ in range(count // CLIENTS):
            try:
                connection = request(connection)
            except (OSError, AssertionError, http.client.HTTPException) as e:
                failures.append(repr(e))
                return

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        sys.exit(f"{len(failures)} clients failed: {failures[0]}")
    return count // CLIENTS * CLIENTS


def sent(connection, host, method, target, body=None, headers=None):
    connection = connection or http.client.HTTPConnection("127.0.0.1", host, timeout=60)
    connection.request(method, target, body=body, headers=headers or {})
    response = connection.getresponse()
    text = response.read()
    assert response.status == 200, (response.status, text[:200])
    return connection


def redis(url, *words):
    port = int(url.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in words))
        data = s.recv(1 << 20)
        while words[0] == "INFO" and len(data) < int(data[1:data.index(b"\r\n")]):
            data += s.recv(1 << 20)
    return data.decode()


def redis_cost(url):
    """CPU seconds so far, calls of scripts, and the microseconds spent in them."""
    fields = dict(line.split(":", 1) for line in redis(url, "INFO", "everything").splitlines() if ":" in line)
    scripts = [v for k, v in fields.items() if k in ("cmdstat_evalsha", "cmdstat_eval")]
    calls = sum(int(v.split("calls=")[1].split(",")[0]) for v in scripts)
    inside = sum(int(v.split("usec=")[1].split(",")[0]) for v in scripts)
    return float(fields["used_cpu_user"]) + float(fields["used_cpu_sys"]), calls, inside


def tree_cpu(pid):
    """CPU seconds of a process, its children, and those that have ended."""
    total, parents = 0.0, {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path) as f:
                text = f.read()
        except OSError:
            continue
        fields = text.rsplit(")", 1)[1].split()
        parents[int(text.split()[0])] = (int(fields[1]), sum(map(int, fields[11:15])) / TICK, sum(map(int, fields[11:13])) / TICK)
    for each, (parent, whole, own) in parents.items():
        if each == pid:
            total += whole
        elif parent == pid:
            total += own
    return total


def psql(dsn, query):
    return subprocess.run(["psql", dsn, "--no-psqlrc", "-Atc", query], check=True, capture_output=True, text=True).stdout.strip()


def await_delivered(fleet, wanted):
    deadline = time.monotonic() + 300
    while int(psql(fleet["postgres"], "SELECT count(*) FROM interflow.flows")) < wanted:
        if time.monotonic() > deadline:
            sys.exit("the flows are never delivered")
        time.sleep(0.5)


def main():
    origin = serve()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)
        config = os.path.join(folder, "more.toml")
        with open(config, "w") as f:
            f.write(f"""
[llm.provider.openai]
url = "http://127.0.0.1:{origin}"
api_key = "sk-x"
[[quota.rule]]
name = "all"
count_by = "client"
[quota.rule.allow]
requests = "1000000/s"
tokens_per_day = 1000000000
""")
        script = [sys.executable, os.path.join(ROOT, "scripts/fleet"), "--dir", os.path.join(folder, "fleet")]
        subprocess.run([*script, "start", "--config", config], check=True)
        try:
            with open(os.path.join(folder, "fleet/fleet.json")) as f:
                fleet = json.load(f)
            result = measure(fleet, origin, lambda *words: subprocess.run([*script, *words], check=True))
        finally:
            subprocess.run([*script, "stop"], check=True)
    with open(RESULT, "w") as f:
        json.dump(result, f, indent=2)
        f.write("\n")
    print(json.dumps(result, indent=2))


def measure(fleet, origin, command):
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    result = {"name": "fleet-costs", "command": "bench/scaling/measure.py", "commit": commit, "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
              "machine": f"{os.cpu_count()} x {platform.machine()}, Linux {platform.release()}", "replicas": len(fleet["replicas"]), "requests": REQUESTS}
    # Flows with bodies of 8 KiB, through the proxy. They wait for PostgreSQL first, so that it gets full batches, as it does under load: the few
    # flows that this generator makes in a second would each be a transaction of their own.
    load(CLIENTS, lambda c: sent(c, fleet["proxy"], "GET", f"http://127.0.0.1:{origin}/page"))
    await_delivered(fleet, CLIENTS)
    size = int(psql(fleet["postgres"], "SELECT pg_database_size(current_database())"))
    command("outage", "begin")
    count = load(REQUESTS, lambda c: sent(c, fleet["proxy"], "GET", f"http://127.0.0.1:{origin}/page"))
    began = time.monotonic()
    command("outage", "end")
    with open(os.path.join(os.path.dirname(fleet["ca"]), "../fleet.json")) as f:
        postgres = json.load(f)["processes"]["postgres"]
    cpu = tree_cpu(postgres)
    await_delivered(fleet, CLIENTS + count)
    result["postgres_delivered_after_seconds"] = round(time.monotonic() - began, 1)
    psql(fleet["postgres"], "CHECKPOINT")
    result["postgres_cpu_us_per_flow"] = round((tree_cpu(postgres) - cpu) / count * 1e6, 1)
    result["postgres_bytes_per_flow"] = round((int(psql(fleet["postgres"], "SELECT pg_database_size(current_database())")) - size) / count)
    result["body_bytes"] = BODY_BYTES
    # LLM requests that a rule counts, through the gateway.
    body = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]})
    head = {"Content-Type": "application/json", "Authorization": "Bearer sk-client"}
    (cpu, calls, inside), began = redis_cost(fleet["redis"]), time.monotonic()
    llm = load(REQUESTS, lambda c: sent(c, fleet["gateway"], "POST", "/openai/v1/chat/completions", body, head))
    seconds = time.monotonic() - began
    after, scripts, ran = redis_cost(fleet["redis"])
    result["redis_us_in_scripts_per_request"] = round((ran - inside) / llm, 1)
    result["redis_cpu_us_per_request"] = round((after - cpu) / llm * 1e6, 1)
    result["redis_scripts_per_request"] = round((scripts - calls) / llm, 2)
    result["llm_requests_per_second_meanwhile"] = round(llm / seconds)
    await_delivered(fleet, CLIENTS + count + llm)
    return result


main()
