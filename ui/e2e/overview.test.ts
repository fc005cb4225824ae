// The overview: figures of recorded flows, zooming, and the way from every figure to its flows.
import AxeBuilder from 'axe-core';
import type { Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { World } from './world';

let world: World;
let page: Page;

beforeAll(async () => {
  world = await World.start();
  for (const path of ['/orders', '/orders', '/orders', '/missing', '/broken', '/cut']) await world.send(path);
  await world.recorded(6, '-is:open');
  page = await world.page('/overview?range=15m');
});

afterAll(async () => {
  await world?.stop();
});

const chart = (name: string): Locator => page.getByRole('slider', { name: `${name} over time` });
const query = () => new URL(page.url()).searchParams.get('q') ?? '';
const rows = () => page.locator('.drawn .line[data-id]');

/** The bucket with the most requests, from the figures that the page loads. */
async function busiest(): Promise<{ index: number; count: number; total: number }> {
  const table = page.locator('.chart').first();
  await table.getByRole('button', { name: 'Requests as a table' }).click();
  const cells = await table.locator('tbody tr').evaluateAll((list) => list.map((row) => [...row.querySelectorAll('td')].reduce((n, c) => n + Number(c.textContent?.replace('–', '0')), 0)));
  await table.getByRole('button', { name: 'Requests as a table' }).click();
  const count = Math.max(...cells);
  return { index: cells.indexOf(count), count, total: cells.reduce((a, b) => a + b, 0) };
}

it('begins with the whole of a young recording, which fills the charts', async () => {
  const other = await world.page('/overview');
  await expect.poll(() => other.getByRole('button', { name: 'All', exact: true }).getAttribute('aria-pressed')).toBe('true');
  await other.getByText('the whole recording').waitFor();
  await expect.poll(() => other.locator('.when').textContent()).toMatch(/bars of (500 ms|[125] s)/);
  // Nothing was recorded before, with which it could be compared.
  expect(await other.locator('.delta').count()).toBe(0);
  await other.getByRole('button', { name: '24 h' }).click();
  await expect.poll(() => new URL(other.url()).searchParams.get('range')).toBe('24h');
  await other.context().close();
});

it('counts recorded flows, by result, host and status', async () => {
  await chart('Requests').waitFor();
  expect(await busiest()).toMatchObject({ total: 6 });
  const text = await page.getByRole('main').textContent();
  for (const words of ['Requests by host', 'Duration', 'Slowest', 'Largest', 'Recorded flows', 'UTC']) expect(text).toContain(words);
  expect(await page.locator('.list', { hasText: 'Statuses' }).getByRole('row', { name: /^404/ }).textContent()).toContain('1');
});

it('opens the flows of a row, of a series and of a bar', async () => {
  await page.getByRole('button', { name: '404', exact: true }).click();
  await rows().first().waitFor();
  expect(query()).toMatch(/^time:\S+\.\. status:404$/);
  await expect.poll(() => rows().count()).toBe(1);
  await page.goBack();
  await page.getByRole('list', { name: 'Series of Requests' }).getByRole('button', { name: '4xx' }).click();
  await expect.poll(query).toMatch(/^time:\S+ -is:error status:4xx$/);
  await expect.poll(() => rows().count()).toBe(1);
  await page.goBack();
  // The newest bar: with the keyboard.
  const { count } = await busiest();
  await chart('Requests').focus();
  await page.keyboard.press('End');
  for (let i = 0; i < 100; i += 1) {
    const said = (await chart('Requests').getAttribute('aria-valuetext')) ?? '';
    const sum = [...said.matchAll(/(?:OK|4xx|5xx|Failed) (\d+)/g)].reduce((n, m) => n + Number(m[1]), 0);
    if (sum === count) break;
    await page.keyboard.press('ArrowLeft');
  }
  await page.keyboard.press('Enter');
  await expect.poll(query).toMatch(/^time:\S+\.\.\S*$/);
  await expect.poll(() => rows().count()).toBe(count);
  await page.goBack();
  await chart('Requests').waitFor();
});

it('opens the flows of the bar that is clicked', async () => {
  const { count } = await busiest();
  const box = (await chart('Requests').boundingBox())!;
  // From the right, where the newest bars are; above the drawing, which the highest bar fills, all flows of the bar are meant.
  let said = '';
  // The newest bar is as wide as the part of it that has passed.
  let x = box.x + box.width - 0.2;
  for (; x > box.x + 60; x -= 1) {
    await page.mouse.move(x, box.y + 14);
    said = (await chart('Requests').getAttribute('aria-valuetext')) ?? '';
    if ([...said.matchAll(/(?:OK|4xx|5xx|Failed) (\d+)/g)].reduce((n, m) => n + Number(m[1]), 0) === count) break;
  }
  // The crosshair is shared.
  expect(await chart('Errors').getAttribute('aria-valuenow')).toBe(await chart('Requests').getAttribute('aria-valuenow'));
  await page.mouse.click(x, box.y + 3);
  await expect.poll(query).toMatch(/^time:\S+\.\.\S*$/);
  await expect.poll(() => rows().count()).toBe(count);
  await page.goBack();
  await chart('Requests').waitFor();
});

it('zooms by dragging; Back and a double click zoom out', async () => {
  const step = async () => /bars of (.*)$/.exec((await page.locator('.when').textContent())?.trim() ?? '')?.[1];
  await expect.poll(step).toBe('10 s');
  const box = (await chart('Errors').boundingBox())!;
  const drag = async () => {
    await page.mouse.move(box.x + box.width * 0.7, box.y + 60);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.8, box.y + 60, { steps: 4 });
    await page.mouse.up();
  };
  await drag();
  await expect.poll(() => new URL(page.url()).search).toMatch(/^\?from=\S+&to=\S+$/);
  await expect.poll(step).not.toBe('10 s');
  await page.goBack();
  await expect.poll(step).toBe('10 s');
  await drag();
  await expect.poll(step).not.toBe('10 s');
  await chart('Errors').dblclick();
  await expect.poll(() => new URL(page.url()).search).toBe('?range=15m');
  await expect.poll(step).toBe('10 s');
  // A shared link shows the same.
  await drag();
  await expect.poll(step).not.toBe('10 s');
  const [zoomed, address] = [await step(), page.url()];
  await page.goto(address);
  await expect.poll(step).toBe(zoomed);
  await page.getByRole('button', { name: 'Zoom out' }).click();
  await expect.poll(() => page.url()).not.toBe(address);
});

it('filters all figures, and tells what is wrong with a filter', async () => {
  await page.goto(`http://${world.admin}/overview?range=15m`);
  const filter = page.getByRole('searchbox', { name: 'Filter' });
  await filter.fill('status:404');
  await filter.press('Enter');
  await expect.poll(async () => (await busiest()).total).toBe(1);
  expect(new URL(page.url()).search).toBe('?range=15m&q=status%3A404');
  await filter.fill('status:');
  await filter.press('Enter');
  await page.getByRole('alert').waitFor();
  await filter.fill('');
  await filter.press('Enter');
  await expect.poll(async () => (await busiest()).total).toBe(6);
});

it('shows all time, and an empty range as empty', async () => {
  await page.getByRole('button', { name: 'All', exact: true }).click();
  await expect.poll(async () => (await busiest()).total).toBe(6);
  await page.goto(`http://${world.admin}/overview?from=2020-01-01T00:00:00Z&to=2020-01-02T00:00:00Z`);
  await page.getByText('No flow was recorded in this range.').waitFor();
  await page.getByRole('button', { name: 'Show all time' }).click();
  await expect.poll(async () => (await busiest()).total).toBe(6);
});

it('is accessible, fits every width, and logs nothing', async () => {
  for (const width of [400, 1000, 1920]) {
    await page.setViewportSize({ width, height: 900 });
    await page.goto(`http://${world.admin}/overview?range=15m`);
    await chart('Requests').waitFor();
    const over = await page.evaluate(() => {
      const shown = document.querySelector('.shown')!;
      return shown.scrollWidth - shown.clientWidth;
    });
    expect(over, String(width)).toBeLessThanOrEqual(0);
    const wide = await page.locator('div.grid').evaluate((grid) => grid.getBoundingClientRect().right);
    expect(width - wide, String(width)).toBeLessThan(40);
  }
  await page.evaluate(AxeBuilder.source);
  const broken = await page.evaluate(async () => {
    const { axe } = window as unknown as { axe: { run: () => Promise<{ violations: { id: string; nodes: { target: unknown }[] }[] }> } };
    return (await axe.run()).violations.map((v) => `${v.id}: ${JSON.stringify(v.nodes.map((n) => n.target))}`);
  });
  expect(broken).toEqual([]);
  expect([world.complaints, world.strays]).toEqual([[], []]);
});
