// What is very long: a WebSocket of ten thousand messages, a conversation of two hundred turns.
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

it('ten thousand messages are shown page by page, and searched', async () => {
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
}, 60_000);

it('two hundred turns open at once, the earlier ones on request', async () => {
  const TURNS = 200;
  const messages: { role: string; content: string }[] = [];
  for (let n = 1; n <= TURNS; n += 1) {
    messages.push({ role: 'user', content: `question ${n}` });
    const body = JSON.stringify({ model: 'claude-sonnet-4-5', max_tokens: 9, messages });
    expect(await world.send('/v1/messages', { method: 'POST', headers: { 'content-type': 'application/json', 'anthropic-version': '2023-06-01' }, body })).toBe(200);
    // What the origin answers to a history of this length.
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
