"""What fake LLM providers share: answers of HTTP/1.1, whole or in chunks, and the event stream of AWS."""

import json
import socket
import ssl
import struct
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def frame(name, payload):
    """One message of `application/vnd.amazon.eventstream`."""
    headers = b""
    for key, value in ((":event-type", name), (":content-type", "application/json"), (":message-type", "event")):
        headers += bytes([len(key)]) + key.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
    data = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(data), len(headers))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + data
    return message + struct.pack(">I", zlib.crc32(message))


class FakeProvider(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def whole(self, value, status=200):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def stream(self, media_type, events, cut=False):
        self.send_response(200)
        self.send_header("Content-Type", media_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        events = list(events)
        for event in events[: len(events) // 2] if cut else [*events, b""]:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        if cut:
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True

    def read_body(self):
        if self.headers["Content-Length"]:
            return self.rfile.read(int(self.headers["Content-Length"]))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    @classmethod
    def serve(cls, certificate=None):
        """Listens, says where, and answers until it is ended; over TLS when there is a PEM file of key and certificate."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), cls)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        print(f"listening on 127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()
