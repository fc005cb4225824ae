"""Asks every endpoint of go-httpbin directly and through the proxy, plain and intercepted, and compares the answers."""
import http.client
import re
import socket
import ssl
import sys
import time

PROXY, PLAIN, SECURE, CA, ORIGIN_CA, EXCLUSIONS = sys.argv[1:]
PROXY, PLAIN, SECURE = int(PROXY), int(PLAIN), int(SECURE)
BODY = b'{"name": "value", "text": "gr\xc3\xbc\xc3\x9fe"}'
JSON = {"Content-Type": "application/json"}
# Method, path, fields, body.
ASKED = [
    *[(m, "/" + m.lower(), JSON if b else {}, b) for m, b in
      [("GET", None), ("POST", BODY), ("PUT", BODY), ("PATCH", BODY), ("DELETE", None)]],
    ("HEAD", "/get", {}, None),
    ("OPTIONS", "/get", {}, None),
    ("POST", "/anything/a%20b?x=1&x=2&y=%2F", {"X-Twice": "1"}, BODY * 1000),
    *[("GET", f"/status/{code}", {}, None) for code in (200, 204, 206, 301, 304, 400, 401, 404, 418, 429, 500, 503)],
    ("GET", "/headers", {"X-Mixed-CASE": "a", "Accept": "*/*"}, None),
    ("GET", "/user-agent", {"User-Agent": "compare"}, None),
    ("GET", "/cookies", {"Cookie": "a=1; b=2"}, None),
    ("GET", "/cookies/set?a=1", {}, None),
    ("GET", "/basic-auth/user/pass", {"Authorization": "Basic dXNlcjpwYXNz"}, None),
    ("GET", "/bearer", {"Authorization": "Bearer x"}, None),
    ("GET", "/gzip", {"Accept-Encoding": "gzip"}, None),
    ("GET", "/deflate", {"Accept-Encoding": "deflate"}, None),
    ("GET", "/encoding/utf8", {}, None),
    ("GET", "/html", {}, None),
    ("GET", "/json", {}, None),
    ("GET", "/xml", {}, None),
    ("GET", "/robots.txt", {}, None),
    ("GET", "/image/png", {}, None),
    ("GET", "/base64/aW50ZXJmbG93", {}, None),
    ("GET", "/bytes/100000?seed=7", {}, None),
    ("GET", "/stream-bytes/100000?seed=7&chunk_size=1000", {}, None),
    ("GET", "/stream/20", {}, None),
    ("GET", "/range/1000", {"Range": "bytes=10-19"}, None),
    ("GET", "/range/1000", {"Range": "bytes=2000-"}, None),
    ("GET", "/redirect/2", {}, None),
    ("GET", "/redirect-to?url=http%3A%2F%2Fa.test%2F", {}, None),
    ("GET", "/etag/x", {"If-None-Match": '"x"'}, None),
    ("GET", "/cache", {"If-Modified-Since": "Sat, 01 Jan 2022 00:00:00 GMT"}, None),
    ("GET", "/response-headers?X-A=1&X-A=2&Content-Type=text/x", {}, None),
    ("GET", "/drip?numbytes=10&duration=300ms&delay=0s", {}, None),
    ("GET", "/sse?count=3&duration=300ms", {}, None),
    ("GET", "/trailers?X-End=1", {"TE": "trailers", "Connection": "TE"}, None),
    ("POST", "/upload", {"Content-Type": "text/plain", "Expect": "100-continue"}, BODY),
    ("GET", "/nothing-here", {}, None),
    ("GET", "/deny", {}, None),
]
# What differs from one call to the next: the client's port, times, ids.
VOLATILE = re.compile(rb"127\.0\.0\.1:\d+|\"uuid\": \"[^\"]*\"|\d{13}|\d{4}-\d\d-\d\dT[^\"]*|\"duration\":[^,}]*|boundary=\S+")


def ask(port, secure, proxied, method, path, fields, body):
    host = "origin.test"
    raw = socket.create_connection(("127.0.0.1", PROXY if proxied else port), 20)
    target = path
    if secure:
        if proxied:
            raw.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += raw.recv(1) or sys.exit("the tunnel was refused: " + head.decode())
        raw = ssl.create_default_context(cafile=CA if proxied else ORIGIN_CA).wrap_socket(raw, server_hostname=host)
    elif proxied:
        target = f"http://{host}:{port}{path}"
    connection = http.client.HTTPConnection(host, port)
    connection.sock = raw
    connection.request(method, target, body, {"Host": f"{host}:{port}", **fields})
    answer = connection.getresponse()
    # Framing belongs to a hop: what came in chunks and was whole at once may go on with its length.
    named = sorted((n.lower(), v) for n, v in answer.getheaders()
                   if n.lower() not in ("date", "connection", "content-length", "transfer-encoding", "server-timing", "last-modified"))
    content = VOLATILE.sub(b"?", answer.read())
    connection.close()
    return answer.status, answer.reason, [(n, VOLATILE.sub(b"?", v.encode("latin-1"))) for n, v in named], content


def ready(port):
    for _ in range(100):
        try:
            return socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
    sys.exit(f"nobody listens on {port}")


excluded = {line.split()[0] for line in open(EXCLUSIONS) if line.strip() and not line.startswith("#")}
passed, failed = 0, 0
for secure, port in ((False, PLAIN), (True, SECURE)):
    ready(port)
    for method, path, fields, body in ASKED:
        if path in excluded:
            continue
        try:
            direct = ask(port, secure, False, method, path, fields, body)
            proxied = ask(port, secure, True, method, path, fields, body)
        except (OSError, http.client.HTTPException) as e:
            direct, proxied = "an answer", f"{type(e).__name__}: {e}"
        if direct == proxied:
            passed += 1
            continue
        failed += 1
        print(f"  FAILED {'https' if secure else 'http'} {method} {path}")
        print(f"    direct  {str(direct)[:500]}\n    proxied {str(proxied)[:500]}")
print(f"httpbin: {passed} passed, {failed} failed")
sys.exit(1 if failed or not passed else 0)
