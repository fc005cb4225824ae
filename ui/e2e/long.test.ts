// Long content: a WebSocket with ten thousand messages, a conversation with two hundred turns.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { World } from './world';

let world: World;
let page: Page;

beforeAll(async () => {
  world = await World.start();
  page = await world.page('/');
});

afterAll(async () => {
  await world?.stop();
});

it('ten thousand messages are paged and searchable', async () => {
  await world.webSocket('/many-messages');
  await expect.poll(async () => (await world.api<{ flows: { messages: number }[] }>('/flows?query=is:websocket')).flows[0]?.messages, { timeout: 15_000 }).toBeGreaterThan(10_000);
  await page.goto(`http://${world.admin}/?q=is:websocket`);
  await page.locator('.drawn .line[data-id]').first().click();
  await page.getByRole('tab', { name: /Messages/ }).click();
  const items = page.getByRole('tabpanel').locator('li');
  await expect.poll(() => items.count()).toBe(200);
  await page.getByRole('button', { name: /Show more/ }).click();
  await expect.poll(() => items.count()).toBe(400);
  await page.getByRole('tabpanel').getByRole('searchbox').fill('message 399');
  await expect.poll(() => items.count()).toBe(1);
  await page.getByRole('tabpanel').getByRole('searchbox').fill('');
  await page.getByRole('button', { name: 'The newest' }).click();
  await page.getByRole('tabpanel').getByText('message 9999', { exact: true }).waitFor();
  await page.getByRole('button', { name: /Show earlier/ }).click();
  await page.getByRole('tabpanel').getByText('message 9700', { exact: true }).waitFor();
  // A completed flow is not polled.
  const asked: string[] = [];
  page.on('request', (r) => asked.push(r.url()));
  await page.waitForTimeout(1500);
  expect(asked.filter((a) => a.includes('/messages?'))).toEqual([]);
  // The number of loaded messages stays bounded.
  for (let i = 0; i < 11; i += 1) {
    const first = items.first().locator('a');
    const before = await first.textContent();
    await page.getByRole('button', { name: /Show earlier/ }).click();
    await expect.poll(() => first.textContent()).not.toBe(before);
  }
  expect(await items.count()).toBe(2000);
  await page.getByRole('button', { name: /Show more/ }).waitFor();
}, 60_000);

it.each(['/huge.json', '/huge.txt'])('fifty megabytes of %s are loaded on request, and no view blocks the page', async (path) => {
  expect((await world.fetch(path)).body.length).toBeGreaterThan(50_000_000);
  await page.goto(`http://${world.admin}/?q=path:${path}`);
  await page.locator('.drawn .line[data-id]').first().click();
  await page.getByRole('tab', { name: 'Response' }).click();
  const text = page.getByTestId('body-text');
  for (const view of await page.getByRole('group', { name: 'View of the body' }).getByRole('button').all()) {
    const from = Date.now();
    await view.click();
    await expect.poll(async () => ((await text.textContent()) ?? '').length, { timeout: 15_000 }).toBeGreaterThan(1000);
    expect(Date.now() - from).toBeLessThan(15_000);
  }
  await page.getByRole('button', { name: 'Text', exact: true }).click();
  for (const more = page.getByRole('button', { name: 'Show more' }); (await more.count()) > 0;) {
    const before = ((await text.textContent()) ?? '').length;
    await more.click();
    await expect.poll(async () => ((await text.textContent()) ?? '').length, { timeout: 15_000 }).toBeGreaterThan(before);
  }
  expect(((await text.textContent()) ?? '').length).toBe(8 << 20);
  const from = Date.now();
  await page.keyboard.press('1');
  await page.getByRole('tab', { name: 'Overview', selected: true }).waitFor();
  expect(Date.now() - from).toBeLessThan(5000);
  const raw = await world.api<{ response: { body: { kept: number } } }>(`/flows/${new URL(page.url()).searchParams.get('id')}`);
  expect(raw.response.body.kept).toBeGreaterThan(50_000_000);
}, 120_000);

it('two hundred turns open quickly, earlier ones on request', async () => {
  const TURNS = 200;
  const messages: { role: string; content: string }[] = [];
  for (let n = 1; n <= TURNS; n += 1) {
    messages.push({ role: 'user', content: `question ${n}` });
    const body = JSON.stringify({ model: 'claude-sonnet-4-5', max_tokens: 9, messages });
    expect(await world.send('/v1/messages', { method: 'POST', headers: { 'content-type': 'application/json', 'anthropic-version': '2023-06-01' }, body })).toBe(200);
    // The origin's response to a history of this length.
    messages.push({ role: 'assistant', content: messages.length === 1 ? 'an answer' : `answer number ${messages.length}` });
  }
  await page.goto(`http://${world.admin}/conversations`);
  await expect.poll(() => page.getByRole('main').textContent(), { timeout: 30_000 }).toMatch(/(199|200) turns/);
  await page.keyboard.press('j');
  await page.getByRole('article').getByText(`question ${TURNS}`).waitFor();
  const turns = page.locator('.turn');
  await expect.poll(() => turns.count()).toBeLessThanOrEqual(61);
  await page.getByRole('button', { name: /earlier turns/ }).click();
  await expect.poll(() => turns.count()).toBeGreaterThan(100);
  const from = Date.now();
  await page.keyboard.press('e');
  await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
  expect(Date.now() - from).toBeLessThan(3000);
  expect([world.complaints, world.strays]).toEqual([[], []]);
}, 120_000);
