// Intercepted TLS: both sides, client fingerprints, and live gRPC messages.
import { readFileSync } from 'node:fs';
import type { ClientHttp2Session, Http2SecureServer } from 'node:http2';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { framed, numbered, startGrpc, throughProxy } from './secure';
import { World } from './world';

const MESSAGES = 12;

let world: World;
let page: Page;
let origin: { server: Http2SecureServer; authority: string };
let client: ClientHttp2Session;
const panel = () => page.getByRole('tabpanel');
const rows = () => page.locator('.drawn .line[data-id]');

beforeAll(async () => {
  origin = await startGrpc(MESSAGES, 250);
  world = await World.start({ config: () => '[upstream]\ndanger_insecure_hosts = ["localhost"]\n' });
  client = await throughProxy(world, origin.authority);
  page = await world.page('/');
});

afterAll(async () => {
  client?.destroy();
  await world?.stop();
  origin?.server.close();
});

/** Sends a request; resolves when the response has ended. */
function call(path: string, type: string, said: Buffer): Promise<void> {
  const stream = client.request({ ':method': 'POST', ':path': path, 'content-type': type, te: 'trailers' });
  stream.end(said);
  stream.resume();
  return new Promise((done, fail) => stream.once('end', done).once('error', fail));
}

async function open(path: string, tab: string) {
  await world.recorded(1, `path:${path}`);
  await page.goto(`http://${world.admin}/?q=path:${path}`);
  await rows().first().click();
  await page.getByRole('tab', { name: tab }).click();
}

it('the TLS tab shows both sides and the fingerprints, and filters by them', async () => {
  await call('/plain', 'text/plain', Buffer.from('hello'));
  await open('/plain', 'TLS');
  const text = () => panel().textContent();
  for (const words of ['Client side', 'TLSv1.3', 'localhost', 'h2', 'Fingerprints of the client', 'JA3', 'JA4', 'JA4H', 'HTTP/2 (Akamai)', 'Upstream side', 'not verified']) {
    await expect.poll(text, { message: words }).toContain(words);
  }
  expect(await text()).toMatch(/t13d\w+_[0-9a-f]{12}_[0-9a-f]{12}/);
  const ja4 = panel().getByRole('row', { name: /^JA4 / });
  await ja4.hover();
  await ja4.getByRole('button', { name: /^Filter for ja4:/ }).click();
  await expect.poll(() => new URL(page.url()).searchParams.get('q')).toContain('ja4:');
  await expect.poll(() => rows().count()).toBeGreaterThan(0);
});

it('the TLS tab shows the certificates of both sides, with warnings', async () => {
  await call('/chain', 'text/plain', Buffer.from('hello'));
  await open('/chain', 'TLS');
  const minted = panel().getByRole('region', { name: 'Certificates presented by Interflow' });
  const origin = panel().getByRole('region', { name: 'Certificates presented by the origin' });
  await minted.locator('summary').first().click();
  await expect.poll(() => minted.textContent()).toMatch(/localhost.*issued by Interflow.*Valid for \(SAN\)\s*localhost.*EC P-256/s);
  expect(await minted.textContent()).not.toContain('self-signed');
  expect(await origin.locator('summary').textContent()).toMatch(/localhost\s*self-signed/);
  await origin.locator('summary').click();
  await expect.poll(() => origin.textContent()).toMatch(/127\.0\.0\.1.*SHA-256\s*[0-9a-f]{64}/s);
  const [file] = await Promise.all([page.waitForEvent('download'), origin.getByRole('button', { name: 'Save as PEM' }).click()]);
  expect(readFileSync(await file.path(), 'utf8')).toMatch(/^-----BEGIN CERTIFICATE-----\n/);
});

it('gRPC messages arrive one by one, decoded', async () => {
  const done = call('/shop.Stock/Watch', 'application/grpc', framed(numbered(7, 'what is there?')));
  await open('/shop.Stock/Watch', 'Messages');
  const messages = panel().locator('li');
  await expect.poll(() => messages.count()).toBeGreaterThan(0);
  expect(await messages.count()).toBeLessThan(MESSAGES);
  await panel().getByText('live').waitFor();
  await done;
  await expect.poll(() => messages.count()).toBe(MESSAGES + 1);
  const first = messages.first();
  expect(await first.getAttribute('class')).toContain('request');
  expect(await first.textContent()).toContain('what is there?');
  expect(await messages.last().textContent()).toContain(`answer ${MESSAGES}`);
  expect(await messages.last().locator('pre').textContent()).toContain('1: 12');
  await expect.poll(() => rows().first().locator('.badge').allTextContents()).toContain('grpc');
});

it('no external requests and no console errors', () => {
  expect([world.complaints, world.strays]).toEqual([[], []]);
});
