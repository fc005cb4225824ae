// Media: created links can be played, and active streams are listed with their rate.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { violations } from './axe';
import { startFilm, type Film } from './film';
import { FILM } from './origin';
import { World } from './world';

let world: World;
let page: Page;
let film: Film;

beforeAll(async () => {
  world = await World.start({ config: () => '[media]\nallow_private = ["127.0.0.1/32"]\n' });
  film = await startFilm(world.browser);
  page = await world.page('/media');
});

afterAll(async () => {
  film?.server.close();
  await world?.stop();
});

/** What a player loads from the gateway of the instance, and nothing else, is no stray request. */
function playedFrom(gateway: string) {
  expect(world.strays.filter((s) => new URL(s).host !== gateway)).toEqual([]);
  world.strays.length = 0;
}

const player = (on: Page) => on.getByLabel('Player', { exact: true });
/** The position of the player, in seconds. */
const position = (on: Page) => player(on).evaluate((v: HTMLVideoElement) => v.currentTime);

const DETECT = 'Detect from the URL';

async function link(kind: string, path: string, headers = ''): Promise<string> {
  await page.getByLabel(/^Type/).selectOption(kind === DETECT ? '' : { label: kind });
  await page.getByRole('textbox', { name: 'URL' }).fill(`http://${world.origin}${path}`);
  if (headers) {
    await page.getByText('Request to the origin').click();
    await page.getByRole('textbox', { name: 'Header fields for the origin' }).fill(headers);
  }
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

it('created links stay listed in the browser, to be played, copied, reused and forgotten', async () => {
  const address = await link('File or stream, unchanged', '/film.mp4');
  const rows = page.getByRole('region', { name: 'Created links' }).getByRole('row', { name: /127/ });
  const row = rows.filter({ hasText: '/film.mp4' });
  await row.getByRole('button', { name: 'Copy' }).click();
  await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toBe(address);
  // Another tab has them, too.
  const other = await page.context().newPage();
  await other.goto(`http://${world.admin}/media`);
  await other.getByText('/film.mp4').waitFor();
  await other.close();
  await page.reload();
  await row.getByRole('button', { name: 'Reuse' }).click();
  expect(await page.getByRole('textbox', { name: 'URL' }).inputValue()).toBe(`http://${world.origin}/film.mp4`);
  const before = await rows.count();
  await row.getByRole('button', { name: 'Forget' }).click();
  await expect.poll(() => rows.count()).toBe(before - 1);
  await page.getByRole('button', { name: 'Undo', exact: true }).click();
  await expect.poll(() => rows.count()).toBe(before);
  await page.getByRole('button', { name: 'Forget all' }).click();
  await page.getByText('No links yet.').waitFor();
  expect(await page.evaluate(() => localStorage.getItem('media.links'))).toBeNull();
});

it('a file, HLS and DASH are played in the page, in one step', async () => {
  for (const [path, type] of [['/film.mp4', DETECT], ['/film.m3u8', DETECT], ['/film.mpd', DETECT], ['/film.mpd', 'DASH manifest, played as DASH']] as const) {
    await page.getByLabel(/^Type/).selectOption(type === DETECT ? '' : { label: type });
    await page.getByRole('textbox', { name: 'URL' }).fill(`http://${film.address}${path}`);
    await page.getByRole('button', { name: 'Create and play' }).click();
    await page.getByText('160 × 90').waitFor();
    await expect.poll(() => position(page), { message: `${path} ${type}` }).toBeGreaterThan(0.3);
    expect(await page.evaluate(() => document.activeElement?.tagName)).toBe('VIDEO');
    await page.keyboard.press('Escape');
    await expect.poll(() => player(page).count()).toBe(0);
  }
  playedFrom(world.gateway);
});

it('HLS is played by a script where the browser does not play it', async () => {
  const other = await world.page('/media');
  await other.addInitScript(() => {
    const known = HTMLMediaElement.prototype.canPlayType;
    HTMLMediaElement.prototype.canPlayType = function (type) { return type.includes('mpegurl') ? '' : known.call(this, type); };
  });
  await other.reload();
  await other.getByRole('textbox', { name: 'URL' }).fill(`http://${film.address}/film.m3u8`);
  await other.getByRole('button', { name: 'Create and play' }).click();
  await other.getByText('160 × 90').waitFor();
  expect(await other.getByText('by hls.js').count()).toBe(1);
  await expect.poll(() => position(other)).toBeGreaterThan(0.3);
  expect(await player(other).evaluate((v: HTMLVideoElement) => v.currentSrc)).toMatch(/^blob:/);
  await other.context().close();
  playedFrom(world.gateway);
});

it('what cannot be played says why', async () => {
  for (const [path, text] of [['/missing.mp4', /The gateway answered 404/], ['/broken.m3u8', /this browser cannot play/]] as const) {
    await page.getByLabel(/^Type/).selectOption('');
    await page.getByRole('textbox', { name: 'URL' }).fill(`http://${film.address}${path}`);
    await page.getByRole('button', { name: 'Create and play' }).click();
    await page.getByText(text).waitFor({ timeout: 20_000 });
    await page.getByRole('button', { name: 'Close the player' }).click();
  }
  await page.getByLabel(/^Type/).selectOption({ label: 'Programme guide' });
  expect(await page.getByRole('button', { name: 'Create and play' }).count()).toBe(0);
  playedFrom(world.gateway);
}, 60_000);

it('the page with a player is accessible', async () => {
  await page.getByLabel(/^Type/).selectOption('');
  await page.getByRole('textbox', { name: 'URL' }).fill(`http://${film.address}/film.mp4`);
  await page.getByRole('button', { name: 'Create and play' }).click();
  await page.getByText('160 × 90').waitFor();
  for (const group of ['Request to the origin', 'Decryption', 'Restrictions']) await page.getByText(group).click();
  expect(await violations(page)).toEqual([]);
  await page.keyboard.press('Escape');
  await page.reload();
  playedFrom(world.gateway);
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
  expect(await link(DETECT, '/show/master.m3u8')).toContain('/proxy/hls/manifest.m3u8');
  expect(await link(DETECT, '/film.mp4')).toContain('/proxy/stream');
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
