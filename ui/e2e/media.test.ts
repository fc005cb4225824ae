// Media: created links can be played, and active streams are listed with their rate.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { FILM } from './origin';
import { World } from './world';

let world: World;
let page: Page;

beforeAll(async () => {
  world = await World.start({ config: () => '[media]\nallow_private = ["127.0.0.1/32"]\n' });
  page = await world.page('/media');
});

afterAll(async () => {
  await world?.stop();
});

async function link(kind: string, path: string, headers = ''): Promise<string> {
  await page.getByLabel(/^Type/).selectOption({ label: kind });
  await page.getByRole('textbox', { name: 'URL' }).fill(`http://${world.origin}${path}`);
  await page.getByRole('textbox', { name: 'Header fields for the origin' }).fill(headers);
  const made = page.getByRole('status').locator('pre');
  const [answer] = await Promise.all([
    page.waitForResponse((r) => r.url().endsWith('/media/links')), page.getByRole('button', { name: 'Create link' }).click(),
  ]);
  const { url } = (await answer.json()) as { url: string };
  await expect.poll(() => made.textContent()).toBe(url);
  return url;
}

it('a link does not reveal its destination', async () => {
  const address = await link('File or stream, unchanged', '/secret-name.mp4');
  expect(address).toContain('/media/');
  expect(address).not.toContain(world.origin);
  expect(address).not.toContain('secret-name');
  await page.getByText('No active streams').waitFor();
});

it('created links stay listed in the tab, to be played and copied', async () => {
  const address = await link('File or stream, unchanged', '/film.mp4');
  const row = page.getByRole('region', { name: 'Created links' }).getByRole('row', { name: /film\.mp4/ });
  await row.getByRole('button', { name: 'Play' }).click();
  const player = page.getByLabel('Player');
  expect(await player.getAttribute('src')).toBe(address);
  await expect.poll(() => world.strays.includes(address)).toBe(true);
  // The gateway of the instance, and nothing else.
  expect(world.strays.every((s) => new URL(s).host === world.gateway)).toBe(true);
  world.strays.length = 0;
  await page.getByRole('button', { name: 'Close the player' }).click();
  await page.reload();
  await row.getByRole('button', { name: 'Play' }).waitFor();
  await page.getByRole('button', { name: 'Forget them' }).click();
  await expect.poll(() => row.count()).toBe(0);
});

it('a link to a file plays the file, whole and in ranges', async () => {
  const address = await link('File or stream, unchanged', '/film.mp4');
  expect(address).toContain(world.gateway);
  const whole = await fetch(address);
  expect(whole.headers.get('content-type')).toBe('video/mp4');
  expect(Buffer.from(await whole.arrayBuffer()).equals(FILM)).toBe(true);
  const part = await fetch(address, { headers: { range: 'bytes=100-199' } });
  expect(part.status).toBe(206);
  expect(Buffer.from(await part.arrayBuffer()).equals(FILM.subarray(100, 200))).toBe(true);
});

it('the endpoint is detected from the address', async () => {
  expect(await link('Detect from the URL', '/show/master.m3u8')).toContain('/proxy/hls/manifest.m3u8');
  expect(await link('Detect from the URL', '/film.mp4')).toContain('/proxy/stream');
});

it('a playlist link serves renditions and segments with the header fields for the origin', async () => {
  const address = await link('HLS playlist', '/show/master.m3u8', 'Referer: https://films.test/');
  const lines = async (from: string) => (await (await fetch(from)).text()).split('\n').filter((l) => l && !l.startsWith('#'));
  const [rendition] = await lines(address);
  expect(rendition).toContain(world.gateway);
  expect(rendition).not.toContain('low/index');
  const segments = await lines(rendition!);
  expect(segments.length).toBe(2);
  const bytes = await Promise.all(segments.map(async (s) => Buffer.from(await (await fetch(s)).arrayBuffer())));
  expect(Buffer.concat(bytes).equals(FILM.subarray(0, 9000))).toBe(true);
});

it('an invalid request reports an error', async () => {
  await page.getByLabel(/^Type/).selectOption({ label: 'File or stream, unchanged' });
  await page.getByRole('textbox', { name: 'URL' }).fill('ftp://films.test/a');
  await page.getByRole('button', { name: 'Create link' }).click();
  await expect.poll(() => page.locator('.error-box').textContent()).toMatch(/http/);
});

it('active streams are listed with their rate until they end', async () => {
  const address = await link('File or stream, unchanged', '/long.mp4');
  const playing = fetch(address).then((r) => r.arrayBuffer());
  const row = page.getByRole('region', { name: 'Active streams' }).getByRole('row', { name: /127\.0\.0\.1/ });
  await expect.poll(() => row.count(), { timeout: 6000 }).toBe(1);
  await expect.poll(() => row.textContent(), { timeout: 5000 }).toMatch(/\d (kB|KiB|MB|MiB|B)\/s/);
  const rate = /([\d.,]+) ?(\w+)\/s/.exec((await row.textContent()) ?? '');
  expect(Number(rate?.[1]?.replace(',', ''))).toBeGreaterThan(0);
  expect((await playing).byteLength).toBe(FILM.length * 40);
  await page.getByText('No active streams').waitFor();
  await expect.poll(() => page.getByText(/finished,/).textContent()).toMatch(/[1-9]\d* finished, [1-9]/);
}, 40_000);

it('no external requests and no console errors', () => {
  expect([world.complaints, world.strays]).toEqual([[], []]);
});
