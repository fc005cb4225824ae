"""Records traffic, archives it to a real S3 server, and compares what query engines read with what was recorded."""

import base64
import contextlib
import hashlib
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import boto3
import duckdb
import polars
import pyarrow.dataset
import pyarrow.fs
from moto.server import ThreadedMotoServer

INTERFLOW, ORIGIN = os.environ["INTERFLOW"], os.environ["ORIGIN"]
failed = 0


def case(name, ok, shown=""):
    global failed
    failed += not ok
    print(f"{'ok  ' if ok else 'FAIL'} {name}{'' if ok else f': {shown}'}")


def main():
    # Every request otherwise.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    with tempfile.TemporaryDirectory() as work, contextlib.ExitStack() as stop:
        stop.callback(server.stop)
        keys = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "hush", "AWS_REGION": "us-east-1"}
        os.environ.update(keys, AWS_ENDPOINT_URL=endpoint, AWS_DEFAULT_REGION="us-east-1")
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket="lake")
        home = Path(work) / "home"
        record(home, work, stop)
        archive(home, s3, endpoint)
        refusals(home, work)
    sys.exit(1 if failed else 0)


def interflow(home, *args, **more):
    return subprocess.run([INTERFLOW, "--data-dir", home, *args], capture_output=True, text=True, **more)


def record(home, work, stop):
    """Some hundred requests with bodies of many sizes, text and binary."""
    origin = subprocess.Popen([ORIGIN, Path(work, "ca.pem"), "origin.test"], stdout=subprocess.PIPE, text=True)
    stop.callback(origin.kill)
    port = re.search(r"plain (\d+)", origin.stdout.readline()).group(1)
    any_port = ["--listen-proxy", "127.0.0.1:0", "--listen-gateway", "127.0.0.1:0", "--listen-admin", "127.0.0.1:0"]
    proxy = subprocess.Popen([INTERFLOW, "--data-dir", home, "run", *any_port], stdout=subprocess.DEVNULL)
    stop.callback(proxy.kill)
    for _ in range(600):
        with contextlib.suppress(OSError, ValueError):
            address = json.loads((home / "instance.json").read_text())["proxy"][0]
            break
        time.sleep(0.05)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": f"http://{address}"}))
    for i in range(300):
        body = hashlib.sha512(str(i).encode()).digest() * (i * i % 700)
        with opener.open(urllib.request.Request(f"http://127.0.0.1:{port}/echo?i={i}", data=body)) as answer:
            answer.read()
    with contextlib.suppress(urllib.error.HTTPError):
        opener.open(f"http://127.0.0.1:{port}/status/404").read()
    proxy.terminate()
    proxy.wait()


def recorded(home):
    """The digests of the bodies of every flow, as another export has them."""
    flows = {}
    for line in interflow(home, "flows", "export", "--format", "jsonl").stdout.splitlines():
        flow = json.loads(line)
        bodies = (body_bytes(flow.get(f"{side}_body")) for side in ("request", "response"))
        flows[flow["flow"]["id"]] = tuple(map(digest, bodies))
    return flows


def body_bytes(body):
    """The bytes of a body in JSONL: text, or Base64."""
    return base64.b64decode(body["base64"]) if isinstance(body, dict) else (body or "").encode()


def digest(body):
    return hashlib.sha256(body or b"").hexdigest()


def archive(home, s3, endpoint):
    said = interflow(home, "record", "archive", "--to", "s3://lake/traffic", "--now", "--json")
    case("`record archive --now` succeeds", said.returncode == 0, said.stderr)
    time.sleep(1.1)
    # The last second is left to the next run.
    interflow(home, "record", "archive", "--to", "s3://lake/traffic", "--now")
    again = interflow(home, "record", "archive", "--to", "s3://lake/traffic", "--now")
    case("what is archived is not written again", "nothing new" in again.stdout, again.stdout + again.stderr)
    want = recorded(home)
    case("301 flows were recorded", len(want) == 301, len(want))

    def compare(engine, rows):
        got = {id: (digest(request), digest(response)) for id, request, response in rows}
        case(f"{engine} reads every flow once", len(rows) == len(got) == len(want), f"{len(rows)} rows")
        wrong = [id for id in want if got.get(id) != want[id]]
        case(f"{engine} reads the bodies that were recorded (SHA-256)", not wrong, wrong[:3])

    columns = ["id", "request_body", "response_body"]
    # Arrow, directly from the bucket.
    bucket = pyarrow.fs.S3FileSystem(
        access_key="id", secret_key="hush", endpoint_override=endpoint.removeprefix("http://"), scheme="http"
    )
    data = pyarrow.dataset.dataset("lake/traffic", filesystem=bucket, partitioning="hive")
    table = data.to_table()
    compare("Arrow", list(zip(*(table[name].to_pylist() for name in columns))))
    hours = set(zip(table["date"].to_pylist(), table["hour"].to_pylist()))
    began = {t.strftime("%Y-%m-%d %-H") for t in table["started"].to_pylist()}
    case("its partitions are the hours of the flows", {f"{d} {h}" for d, h in hours} == began, (hours, began))
    # Polars, directly from the bucket.
    options = {"aws_endpoint_url": endpoint, "aws_region": "us-east-1", "aws_allow_http": "true",
               "aws_access_key_id": "id", "aws_secret_access_key": "hush"}
    frame = polars.scan_parquet("s3://lake/traffic/**/*.parquet", storage_options=options, hive_partitioning=True)
    compare("Polars", frame.select(columns).collect().rows())
    # DuckDB reads S3 with an extension that it downloads; here it reads a copy.
    with tempfile.TemporaryDirectory() as copy:
        names = [o["Key"] for o in s3.list_objects_v2(Bucket="lake").get("Contents", [])]
        for name in names:
            Path(copy, name).parent.mkdir(parents=True, exist_ok=True)
            s3.download_file("lake", name, str(Path(copy, name)))
        rows = f"read_parquet('{copy}/traffic/**/*.parquet', hive_types = {{'date': DATE, 'hour': INTEGER}})"
        compare("DuckDB", duckdb.sql(f"SELECT id, request_body, response_body FROM {rows}").fetchall())
        found = duckdb.sql(
            f"SELECT count(*) FROM {rows} WHERE date >= DATE '2020-01-01' AND status = 404 AND hour BETWEEN 0 AND 23"
        ).fetchall()
        case("DuckDB filters by partition and column", found == [(1,)], found)
    case("only Parquet files are in the bucket", all(n.endswith(".parquet") for n in names), names)


def refusals(home, work):
    """Each mistake is one clear error."""
    for name, url, changed, expected in [
        ("a missing bucket", "s3://absent/x", {}, "the bucket does not exist"),
        ("a server that is down", "s3://lake", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "check the network"),
        ("half of the credentials", "s3://lake", {"AWS_ACCESS_KEY_ID": ""}, "AWS_ACCESS_KEY_ID"),
    ]:
        env = {k: v for k, v in {**os.environ, **changed}.items() if v}
        said = interflow(home, "record", "archive", "--to", url, env=env)
        case(f"{name} is an error with its remedy", said.returncode != 0 and expected in said.stderr, said.stderr)
        case("it is one line and holds no secret", said.stderr.count("\n") == 1 and "hush" not in said.stderr, said.stderr)


main()
