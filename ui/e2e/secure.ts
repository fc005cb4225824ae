// A gRPC origin with TLS, and a client that reaches it through the proxy.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect as connectH2, createSecureServer, type ClientHttp2Session, type Http2SecureServer } from 'node:http2';
import { connect, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import type { World } from './world';

/** A self-signed certificate. */
function ownCertificate(): { key: Buffer; cert: Buffer } {
  const folder = mkdtempSync(join(tmpdir(), 'interflow-cert-'));
  const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')];
  execFileSync('openssl', [
    'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-subj', '/CN=localhost',
    '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1', '-keyout', key, '-out', cert,
  ], { stdio: 'ignore' });
  const pair = { key: readFileSync(key), cert: readFileSync(cert) };
  rmSync(folder, { recursive: true });
  return pair;
}

/** An uncompressed, length-prefixed gRPC message. */
export function framed(payload: Buffer): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(payload.length, 1);
  return Buffer.concat([head, payload]);
}

/** `{ 1: n, 2: text }` in Protocol Buffers. */
export function numbered(n: number, text: string): Buffer {
  return Buffer.concat([Buffer.from([0x08, n, 0x12, text.length]), Buffer.from(text)]);
}

/** Answers a call with `many` messages, one in each `pause` milliseconds. */
export async function startGrpc(many: number, pause: number): Promise<{ server: Http2SecureServer; authority: string }> {
  const server = createSecureServer({ ...ownCertificate(), allowHTTP1: true });
  server.on('stream', (stream, headers) => {
    stream.on('error', () => undefined);
    stream.resume();
    if (!String(headers['content-type']).startsWith('application/grpc')) {
      stream.respond({ ':status': 200, 'content-type': 'text/plain' });
      stream.end('plain');
      return;
    }
    stream.respond({ ':status': 200, 'content-type': 'application/grpc+proto' }, { waitForTrailers: true });
    stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
    let n = 0;
    const timer = setInterval(() => {
      n += 1;
      stream.write(framed(numbered(n, `answer ${n}`)));
      if (n === many) {
        clearInterval(timer);
        stream.end();
      }
    }, pause);
    stream.on('close', () => clearInterval(timer));
  });
  await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready));
  return { server, authority: `localhost:${(server.address() as AddressInfo).port}` };
}

/** HTTP/2 to an origin through the proxy, in TLS that the proxy opens. */
export async function throughProxy(world: World, authority: string): Promise<ClientHttp2Session> {
  const [host, port] = world.proxy.split(':');
  const socket = connect(Number(port), host);
  socket.write(`CONNECT ${authority} HTTP/1.1\r\nhost: ${authority}\r\n\r\n`);
  await new Promise<void>((done) => socket.once('data', () => done()));
  const { pem } = await world.api<{ pem: string }>('/ca');
  const secure = connectTls({ socket, servername: 'localhost', ca: pem, ALPNProtocols: ['h2'] });
  await new Promise<void>((done, fail) => secure.once('secureConnect', done).once('error', fail));
  return connectH2(`https://${authority}`, { createConnection: () => secure });
}
