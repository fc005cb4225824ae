// Conversations: list, thread with tools and a sub-agent, request diffs, totals, exports, and links from flows.
import { readFileSync } from 'node:fs';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { HOSTILE } from './origin';
import { World } from './world';

let world: World;
let page: Page;

const user = (text: string) => ({ role: 'user', content: text });

async function ask(session: string, messages: unknown[]): Promise<void> {
  const body = {
    model: 'claude-sonnet-4-5', max_tokens: 500, messages, metadata: { user_id: `u_session_${session}` },
    tools: [{ name: 'Bash' }, { name: 'Task' }],
  };
  const headers = { 'content-type': 'application/json', 'user-agent': 'claude-cli/2.0.1 (external, cli)' };
  await world.send('/v1/messages', { method: 'POST', headers, body: JSON.stringify(body) });
}

beforeAll(async () => {
  world = await World.start();
  const said = {
    role: 'assistant',
    content: [
      { type: 'text', text: `I look around. ${HOSTILE}` },
      { type: 'tool_use', id: 't1', name: 'Bash', input: { command: 'ls -l', description: 'List the files' } },
      { type: 'tool_use', id: 't2', name: 'Task', input: { prompt: 'helper task', description: 'Ask a helper' } },
    ],
  };
  const back = {
    role: 'user',
    content: [
      { type: 'tool_result', tool_use_id: 't1', content: 'a.rs\n'.repeat(5000) },
      { type: 'tool_result', tool_use_id: 't2', content: 'the helper is done' },
    ],
  };
  await ask('one', [user('what is here?')]);
  await ask('one', [user('helper task')]);
  await ask('one', [user('what is here?'), said, back]);
  await ask('one', [user('what is here?'), said, back, { role: 'assistant', content: 'answer number 3' }, user('and more?')]);
  await ask('two', [user('another talk')]);
  page = await world.page('/conversations');
});

afterAll(async () => {
  await world?.stop();
});

describe('the list', () => {
  it('shows each conversation once, without its sub-agents', async () => {
    await expect.poll(() => page.locator('.entry').count(), { timeout: 8000 }).toBe(2);
    const first = page.locator('.entry', { hasText: 'what is here?' });
    await expect.poll(() => first.textContent()).toMatch(/claude-code.*claude-sonnet-4-5.*2 turns/s);
    expect(await first.textContent()).toContain('$');
    await page.getByLabel('Sub-agents and utility calls').check();
    await expect.poll(() => page.locator('.entry').count()).toBe(3);
    await page.getByLabel('Sub-agents and utility calls').uncheck();
    await expect.poll(() => page.locator('.entry').count()).toBe(2);
  });

  it('is a table where the window is wide, and beside a conversation it is not', async () => {
    const table = page.getByRole('table', { name: /^Conversations/ });
    expect(await table.getByRole('columnheader').allTextContents()).toEqual(['Compare', 'Conversation', 'Client', 'Model', 'Turns', 'Input', 'Output', 'Cost', 'Lasted', 'Last request']);
    const titles = () => table.getByRole('button', { name: /talk|here/ }).allTextContents().then((list) => list.map((t) => t.trim()));
    const heading = (name: string) => table.getByRole('columnheader', { name });
    await heading('Turns').getByRole('button').click();
    expect(await heading('Turns').getAttribute('aria-sort')).toBe('descending');
    await expect.poll(titles).toEqual(['what is here?', 'another talk']);
    await heading('Turns').getByRole('button').click();
    await expect.poll(titles).toEqual(['another talk', 'what is here?']);
    await page.reload();
    await expect.poll(titles).toEqual(['another talk', 'what is here?']);
    await heading('Last request').getByRole('button').click();
    expect(await heading('Last request').getAttribute('aria-sort')).toBe('descending');
    await table.getByRole('button', { name: 'what is here?' }).click();
    await expect.poll(() => table.count()).toBe(0);
    await page.keyboard.press('Escape');
    await table.waitFor();
  });

  it('has a check box beside the time, also for fingers', async () => {
    for (const hasTouch of [false, true]) {
      const other = await world.page('/conversations', { viewport: { width: 400, height: 800 }, hasTouch });
      const entry = other.locator('li', { hasText: 'what is here?' });
      await entry.hover();
      const [box, time] = await Promise.all(['.choose', '.when'].map((part) => entry.locator(part).boundingBox()));
      expect(time!.x + time!.width, hasTouch ? 'touch' : 'mouse').toBeLessThanOrEqual(box!.x);
      await other.context().close();
    }
  });

  it('is filtered by a query in the URL', async () => {
    const box = page.getByLabel('Filter conversations');
    await box.fill('another');
    await box.press('Enter');
    await expect.poll(() => page.locator('.entry').count()).toBe(1);
    expect(new URL(page.url()).searchParams.get('q')).toBe('another');
    await box.fill('stats:4');
    await box.press('Enter');
    await page.getByText('did you mean', { exact: false }).or(page.locator('.side .error-box')).first().waitFor();
    await box.fill('');
    await box.press('Enter');
    await expect.poll(() => page.locator('.entry').count()).toBe(2);
  });

  it('shows totals by model and by agent, which open their conversations', async () => {
    await page.getByRole('tab', { name: 'Totals' }).click();
    await page.getByRole('rowheader', { name: 'claude-sonnet-4-5' }).waitFor();
    expect(await page.locator('.cards').textContent()).toMatch(/Requests5.*Errors0/s);
    await page.getByLabel('By', { exact: true }).selectOption('agent');
    await page.getByLabel('Show', { exact: true }).selectOption('tokens');
    await page.getByRole('rowheader', { name: 'claude-code' }).waitFor();
    const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Export CSV' }).click()]);
    expect(readFileSync(await file.path(), 'utf8')).toMatch(/^from,agent,model,user,requests,errors,.*\r\n\d{4}-.*,claude-code,claude-sonnet-4-5,,5,0,/);
    await page.locator('.bars .bar:enabled').last().click();
    await expect.poll(() => page.locator('.entry').count()).toBe(3);
    await page.getByRole('button', { name: 'Conversations of any time' }).click();
    await page.getByLabel('Sub-agents and utility calls').uncheck();
    await expect.poll(() => page.locator('.entry').count()).toBe(2);
  });

  it('is grouped by what is chosen', async () => {
    await page.getByRole('heading', { name: /^Today/ }).waitFor();
    await page.getByLabel('Group by').selectOption('agent');
    await page.getByRole('heading', { name: /^claude-code/ }).waitFor();
    await page.reload();
    await page.getByRole('heading', { name: /^claude-code/ }).waitFor();
    await page.getByLabel('Group by').selectOption('day');
  });
});

describe('a thread', () => {
  it('opens by keys and shows turns, and nothing in it runs', async () => {
    await page.locator('body').click({ position: { x: 700, y: 400 } });
    await page.keyboard.press('j');
    await page.keyboard.press('j');
    await page.getByRole('heading', { name: 'what is here?' }).waitFor();
    expect(await page.getByRole('region', { name: /^Turn \d/ }).count()).toBe(2);
    const text = await page.locator('.thread').textContent();
    for (const words of ['I look around. <script>', 'answer number 3', 'and more?', '% cached']) expect(text).toContain(words);
    expect(await page.evaluate('window.pwned')).toBeUndefined();
    expect(new URL(page.url()).searchParams.get('c')).toMatch(/^[0-9a-f]{16}$/);
  });

  it('expands thinking, tool calls and the nested sub-agent', async () => {
    await page.getByText('Thinking').click();
    await page.getByText('a deep thought').waitFor();
    await page.locator('.tool', { hasText: 'List the files' }).locator('summary').click();
    await page.locator('.tool', { hasText: 'List the files' }).getByText('"ls -l"').waitFor();
    const result = page.locator('.tool', { hasText: 'List the files' });
    expect((await result.textContent())!.length).toBeLessThan(3000);
    await result.getByRole('button', { name: /more characters/ }).click();
    await expect.poll(async () => (await result.textContent())!.length).toBeGreaterThan(24_000);
    await page.locator('.tool', { hasText: 'Ask a helper' }).locator('summary').first().click();
    await page.locator('article.nested').getByText('the helper is done').waitFor();
  });

  it('names its figures', async () => {
    const bar = await page.locator('.thread .bar.soft').first().textContent();
    for (const words of ['Input 2.15k, 93 % cached', 'Output 20', 'Cost $', 'First token', 'Duration', 'Stop: end_turn']) expect(bar).toContain(words);
  });

  it('explains what changed between two requests', async () => {
    await page.getByRole('button', { name: 'changes' }).nth(2).click();
    await page.getByText('message the same').waitFor();
    await page.locator('.changes').getByText('came from the cache').waitFor();
  });

  it('is saved as a document', async () => {
    const [file] = await Promise.all([page.waitForEvent('download'), page.getByLabel('Save as').selectOption('html')]);
    expect(file.suggestedFilename()).toMatch(/^[0-9a-f]{16}\.html$/);
  });

  it('links to its flows, and they link back', async () => {
    await page.getByRole('link', { name: 'flow', exact: true }).first().click();
    await page.getByRole('tab', { name: 'Overview' }).click();
    const link = page.getByRole('link', { name: 'conversation of claude-code' });
    await link.waitFor();
    expect(await page.locator('.drawn .model').first().textContent()).toContain('claude-sonnet-4-5');
    await link.click();
    await page.getByRole('heading', { name: 'what is here?' }).waitFor();
  });

  it('fits a narrow window', async () => {
    await page.setViewportSize({ width: 420, height: 800 });
    await page.getByRole('button', { name: 'Back to the list' }).click();
    await page.locator('.entry').first().waitFor();
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    expect(wide).toBeLessThanOrEqual(420);
    await page.setViewportSize({ width: 1440, height: 860 });
  });
});

it('a list longer than the largest page keeps its rows until another filter is applied', async () => {
  const used = { exchanges: 1, input: 1, output: 1, cache_read: 0, cache_write: 0, reasoning: 0, cost: 0, unpriced: 0 };
  const listed = (i: number) => ({ id: `c${i}`, session: '', started: 1e15, updated: 1e15, agent: 'a', model: 'm', provider: '', host: '', title: `talk ${i}`, turns: 1, used });
  let looks = 0;
  await page.route('**/api/v1/conversations?*', (route) => {
    looks += 1;
    const asked = new URL(route.request().url()).searchParams;
    const after = asked.get('after');
    const from = asked.get('query') === 'new' ? 5000 : after ? Number(after.slice(1)) + 1 : 0;
    const conversations = Array.from({ length: Number(asked.get('limit')) }, (_, i) => listed(from + i));
    return route.fulfill({ json: { conversations, next: conversations.at(-1)!.id } });
  });
  await page.goto(`http://${world.admin}/conversations`);
  const entries = page.locator('.entry');
  for (let n = 100; n < 700; n += 100) {
    await expect.poll(() => entries.count()).toBe(n);
    await page.getByRole('button', { name: 'More' }).click();
  }
  await expect.poll(() => entries.count()).toBe(700);
  const before = looks;
  await expect.poll(() => looks, { timeout: 12_000 }).toBeGreaterThan(before + 1);
  expect(await entries.count()).toBe(700);
  const box = page.getByLabel('Filter conversations');
  await box.fill('new');
  await box.press('Enter');
  await expect.poll(() => entries.first().textContent()).toContain('talk 5000');
  expect(await entries.count()).toBe(500);
  await page.unroute('**/api/v1/conversations?*');
});

describe('the pages', () => {
  it('make no external requests and log no errors', () => {
    expect(world.strays).toEqual([]);
    expect(world.complaints).toEqual([]);
  });
});
