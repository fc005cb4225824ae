// A real film, recorded by the browser of the test, and a server that has it as a file, as HLS and as DASH.
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Browser } from 'playwright-core';

interface Segment {
  bytes: Buffer;
  /** In seconds. */
  length: number;
}

export interface Film {
  /** `127.0.0.1:PORT`. */
  address: string;
  server: Server;
}

const SIZE = { width: 160, height: 90 };
const SECONDS = 3;

/** Three seconds of H.264 in fragmented MP4. */
async function record(browser: Browser): Promise<Buffer> {
  const page = await browser.newPage();
  const base64 = await page.evaluate(async ({ width, height, seconds }) => {
    const canvas = document.createElement('canvas');
    Object.assign(canvas, { width, height });
    const context = canvas.getContext('2d')!;
    let n = 0;
    const drawing = setInterval(() => {
      n += 1;
      context.fillStyle = `hsl(${n * 5}, 70%, 50%)`;
      context.fillRect(0, 0, width, height);
      context.fillStyle = '#fff';
      context.fillRect((n * 3) % width, 20, 30, 50);
    }, 40);
    const recorder = new MediaRecorder(canvas.captureStream(25), { mimeType: 'video/mp4;codecs=avc1.42E01E', videoKeyFrameIntervalDuration: 1000 } as MediaRecorderOptions);
    const parts: Blob[] = [];
    recorder.ondataavailable = (e) => parts.push(e.data);
    const ended = new Promise((done) => (recorder.onstop = done));
    recorder.start(1000);
    setTimeout(() => recorder.stop(), seconds * 1000);
    await ended;
    clearInterval(drawing);
    const bytes = new Uint8Array(await new Blob(parts).arrayBuffer());
    let text = '';
    for (const byte of bytes) text += String.fromCharCode(byte);
    return btoa(text);
  }, { ...SIZE, seconds: SECONDS });
  await page.close();
  return Buffer.from(base64, 'base64');
}

/** The top-level boxes of an MP4 file. */
function boxes(file: Buffer): { type: string; bytes: Buffer }[] {
  const list = [];
  for (let at = 0; at + 8 <= file.length;) {
    const length = file.readUInt32BE(at) || file.length - at;
    list.push({ type: file.toString('latin1', at + 4, at + 8), bytes: file.subarray(at, at + length) });
    at += length;
  }
  return list;
}

/** Divides a fragmented file into its initialisation and its fragments. */
function divided(file: Buffer): { init: Buffer; segments: Segment[] } {
  const all = boxes(file);
  const first = all.findIndex((b) => b.type === 'moof');
  const init = Buffer.concat(all.slice(0, first).map((b) => b.bytes));
  const segments: Segment[] = [];
  all.forEach((box, i) => {
    const next = all[i + 1];
    if (box.type === 'moof' && next?.type === 'mdat') segments.push({ bytes: Buffer.concat([box.bytes, next.bytes]), length: 1 });
  });
  for (const s of segments) s.length = SECONDS / segments.length;
  return { init, segments };
}

export async function startFilm(browser: Browser): Promise<Film> {
  const whole = await record(browser);
  const { init, segments } = divided(whole);
  const files: Record<string, { type: string; body: Buffer | string }> = {
    '/film.mp4': { type: 'video/mp4', body: whole },
    '/broken.m3u8': { type: 'application/vnd.apple.mpegurl', body: '#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\nnothing.ts\n#EXT-X-ENDLIST\n' },
    '/nothing.ts': { type: 'video/mp2t', body: 'no transport stream at all' },
    '/film.m3u8': {
      type: 'application/vnd.apple.mpegurl',
      body: ['#EXTM3U', '#EXT-X-VERSION:7', '#EXT-X-TARGETDURATION:3', '#EXT-X-PLAYLIST-TYPE:VOD', '#EXT-X-MAP:URI="init.mp4"',
        ...segments.flatMap((s, i) => [`#EXTINF:${s.length.toFixed(3)},`, `${i}.m4s`]), '#EXT-X-ENDLIST', ''].join('\n'),
    },
    '/film.mpd': {
      type: 'application/dash+xml',
      body: `<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" mediaPresentationDuration="PT${SECONDS}S" minBufferTime="PT1S" profiles="urn:mpeg:dash:profile:isoff-live:2011"><Period><AdaptationSet mimeType="video/mp4" contentType="video"><SegmentTemplate initialization="init.mp4" media="$Number$.m4s" startNumber="0" timescale="1000" duration="${Math.round((SECONDS * 1000) / segments.length)}"/><Representation id="v" codecs="avc1.42E01E" bandwidth="200000" width="${SIZE.width}" height="${SIZE.height}"/></AdaptationSet></Period></MPD>`,
    },
    '/init.mp4': { type: 'video/mp4', body: init },
    ...Object.fromEntries(segments.map((s, i) => [`/${i}.m4s`, { type: 'video/iso.segment', body: s.bytes }])),
  };
  const server = createServer((request, response) => {
    const file = files[(request.url ?? '').split('?')[0]!];
    if (file) response.writeHead(200, { 'content-type': file.type, 'content-length': Buffer.byteLength(file.body) }).end(file.body);
    else response.writeHead(404).end();
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, server };
}
