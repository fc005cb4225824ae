// The part of the browser tests that `make test` runs: first load, traffic, a rule, and the accessibility of every page.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { PAGES, violations } from './axe';
import { World } from './world';

/** Bytes of the first page as transferred. */
const MAX_FIRST_LOAD = 200 << 10;

let world: World;
let page: Page;

beforeAll(async () => {
  world = await World.start();
  page = await world.page('/');
});

afterAll(async () => {
  await world?.stop();
});

it('the first page is small', async () => {
  await page.getByRole('heading', { level: 1 }).waitFor({ state: 'attached' });
  const loaded = await page.evaluate(() => {
    const all = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')] as PerformanceResourceTiming[];
    return all.filter((e) => !new URL(e.name).pathname.startsWith('/api/')).map((e) => [e.name, e.encodedBodySize] as const);
  });
  expect(loaded.length).toBeGreaterThan(2);
  expect(loaded.reduce((sum, [, size]) => sum + size, 0), JSON.stringify(loaded)).toBeLessThan(MAX_FIRST_LOAD);
});

it('traffic appears as it happens, and opens', async () => {
  await world.send('/orders?smoke=1');
  const row = page.locator('.drawn .line[data-id]').first();
  await row.waitFor();
  await expect.poll(() => row.textContent()).toContain('/orders');
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  await page.getByRole('tabpanel').waitFor();
});

it('a rule is saved, listed and obeyed', async () => {
  const [file] = (await world.api<{ files: string[] }>('/rules')).files;
  const address = `/rules/source?${new URLSearchParams({ file: file! }).toString()}`;
  const { text: base } = await world.api<{ text: string }>(address);
  const rule = { text: 'rules:\n  - name: teapot\n    when: path:/teapot\n    then:\n      - answer: { status: 418 }\n', base };
  await world.api(address, { method: 'PUT', body: JSON.stringify(rule), headers: { 'content-type': 'application/json' } });
  await page.goto(`http://${world.admin}/rules`);
  await page.getByText('teapot').first().waitFor();
  expect(await world.send('/teapot')).toBe(418);
});

it.each(PAGES)('%s has no serious violation of accessibility', async (path) => {
  await page.goto(`http://${world.admin}${path}`);
  await page.getByRole('heading', { level: 1 }).first().waitFor({ state: 'attached' });
  // Lists are filled after the heading.
  await page.waitForTimeout(400);
  expect(await violations(page)).toEqual([]);
});

it('nothing else was loaded, and nothing was complained about', () => {
  expect([world.complaints, world.strays]).toEqual([[], []]);
});
