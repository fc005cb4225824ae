// Spending on the page "Keys & budgets": the chart by day and column, and the forecast.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { violations } from './axe';
import { World } from './world';

let world: World;
let page: Page;
const home = mkdtempSync(join(tmpdir(), 'interflow-spending-'));
const day = (back: number) => new Date(Date.now() - back * 86_400_000).toISOString().slice(0, 10);
/** Days with spending before today. */
const DAYS = 5;

beforeAll(async () => {
  mkdirSync(join(home, 'spend'));
  // Two dollars a day of one team, and one of another.
  for (let back = 1; back <= DAYS; back += 1) {
    const row = (team: string, model: string, dollars: number) =>
      JSON.stringify({ key: `k-${team}`, team, provider: 'anthropic', model, requests: 3, estimated: 0, input_tokens: 1000, output_tokens: 100, cached_tokens: 0, micro_dollars: dollars * 1e6, unpriced: 0 });
    writeFileSync(join(home, 'spend', `${day(back)}.jsonl`), `${row('search', 'claude-a', 2)}\n${row('support', 'claude-b', 1)}\n`);
  }
  world = await World.start({ home });
  page = await world.page('/keys');
});

afterAll(async () => {
  await world?.stop();
  rmSync(home, { recursive: true, force: true });
});

const card = () => page.locator('section.card', { has: page.getByRole('heading', { name: 'Spending', exact: true }) });
const by = () => card().getByRole('combobox', { name: /^By/ });
const parts = () => card().getByRole('list', { name: 'Parts of the bars' }).getByRole('listitem').allTextContents().then((list) => list.map((t) => t.replace(/\s+/g, ' ').trim()));

it('bars are divided by team, key or model', async () => {
  await card().getByLabel('From').fill(day(DAYS));
  await expect.poll(parts).toEqual(['search $10.00', 'support $5.00']);
  await by().selectOption('Model');
  await expect.poll(parts).toEqual(['claude-a $10.00', 'claude-b $5.00']);
  await by().selectOption('Key');
  await expect.poll(parts).toEqual(['k-search $10.00', 'k-support $5.00']);
  await by().selectOption('Day');
  await expect.poll(() => card().getByRole('list', { name: 'Parts of the bars' }).count()).toBe(0);
  expect(await card().getByRole('img', { name: /^Spending by day, \$15\.00 in 6 days, at most \$3\.00 a day$/ }).count()).toBe(1);
});

it('the forecast does not depend on the days that are shown', async () => {
  const now = new Date();
  const left = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 0)).getUTCDate() - now.getUTCDate();
  const past = Math.min(DAYS, now.getUTCDate() - 1);
  // What was spent in this month, and three dollars for today and each day that is left.
  const text = `at $3.00 a day, the mean of the last ${DAYS} complete days`;
  for (const from of [day(DAYS), day(1)]) {
    await card().getByLabel('From').fill(from);
    await card().getByText(text).waitFor();
    expect(await card().locator('figcaption').textContent()).toContain(`$${(3 * (past + 1 + left)).toFixed(2)}`);
  }
  const bars = () => card().locator('rect.forecast').count();
  await expect.poll(bars).toBe(left);
  // A range that has ended has no days to come.
  await card().getByLabel('To').fill(day(1));
  await expect.poll(bars).toBe(0);
});

it('the text keeps its distance from the fields, and the page is accessible', async () => {
  await card().getByLabel('From').fill('2020-01-01');
  await card().getByLabel('To').fill('2020-01-02');
  const text = card().getByText('Nothing was spent in these days');
  await text.waitFor();
  const [above, below] = await Promise.all([by().boundingBox(), text.boundingBox()]);
  expect(below!.y - (above!.y + above!.height)).toBeGreaterThanOrEqual(8);
  await card().getByRole('link', { name: 'totals of Conversations' }).waitFor();
  await card().getByLabel('To').fill(day(0));
  await card().getByLabel('From').fill(day(DAYS));
  await card().getByRole('img', { name: /^Spending by day/ }).waitFor();
  expect(await violations(page)).toEqual([]);
  expect([world.complaints, world.strays]).toEqual([[], []]);
});
