// Privacy with real LLM requests: editing policies, findings by route, keys, limits and budgets.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { POLICY_PRESETS, withPreset } from '../src/privacy/presets';
import { World } from './world';

let world: World;
let page: Page;
const editor = () => page.getByRole('textbox', { name: 'Policy', exact: true });
const policyFile = () => join(world.home, 'policy.toml');

const CONFIG = (origin: string) => `
[llm.provider.anthropic]
url = "http://${origin}"
api_key = "sk-real-key"
[redact]
proxied = "redact"
[[redact.route]]
name = "support"
model = "claude-haiku*"
policy = "support.toml"
[[quota.rule]]
name = "each-key"
count_by = "key"
allow = { tokens_per_day = 100000, money_per_month = 20 }
`;

const SUPPORT = 'name = "support"\nkinds = ["email-address"]\nstrategy = { use = "mask" }\n';

async function ask(text: string, { model = 'claude-sonnet-4-5', key = 'sk-own' } = {}) {
  return world.ask('/anthropic/v1/messages', { model, max_tokens: 9, messages: [{ role: 'user', content: text }] }, { 'x-api-key': key });
}

/** The sent request of the latest flow that matches a query. */
async function sent(query: string): Promise<string> {
  await world.recorded(1, query);
  const { flows } = await world.api<{ flows: { id: string }[] }>(`/flows?${new URLSearchParams({ query, limit: '1' }).toString()}`);
  const response = await fetch(`http://${world.admin}/api/v1/flows/${flows[0]!.id}/request/body?view=text`, { headers: { authorization: `Bearer ${world.token}` } });
  return response.text();
}

async function write(text: string) {
  await editor().click();
  await page.keyboard.press('Control+a');
  await page.keyboard.press('Delete');
  await page.keyboard.insertText(text);
}

beforeAll(async () => {
  world = await World.start({
    config: CONFIG,
    files: { 'support.toml': SUPPORT },
  });
  page = await world.page('/privacy');
});

afterAll(async () => {
  await world?.stop();
});

describe('the policy', () => {
  it('is the built-in one initially, and lists the routes that use it', async () => {
    await page.getByText('built-in', { exact: true }).waitFor();
    // The editor has loaded.
    await expect.poll(() => editor().evaluate((n) => (n as HTMLElement).isContentEditable), { timeout: 15_000 }).toBe(true);
    expect(existsSync(policyFile())).toBe(false);
    const routes = page.getByRole('row');
    await expect.poll(() => routes.filter({ hasText: 'gateway requests' }).textContent()).toContain('redact');
    expect(await routes.filter({ hasText: 'model claude-haiku*' }).textContent()).toContain('support.toml');
  });

  it('is completed by its schema and the kinds', async () => {
    await write('exc');
    await page.keyboard.press('Control+Space');
    await page.getByRole('option', { name: 'except' }).click();
    await page.keyboard.type('["da');
    await page.getByRole('option', { name: 'date', exact: true }).click();
    await expect.poll(() => editor().textContent()).toContain('except = ["date"]');
    await page.keyboard.press('Control+End');
    await page.keyboard.press('Enter');
    await page.keyboard.type('[kind.credit');
    await page.getByRole('option', { name: 'credit-card' }).click();
    await expect.poll(() => editor().textContent()).toContain('[kind.credit-card]');
  });

  it('is checked while editing, with positions, and rejected while invalid', async () => {
    await write('name = "ours"\nexept = ["date"]\n');
    await page.getByText('1 error').waitFor();
    const place = page.getByRole('button', { name: 'line 2, column 1: unknown key `exept`: did you mean `except`?' });
    await place.click();
    await page.getByRole('button', { name: 'Save and apply' }).click();
    await page.locator('.notice.wrong').first().waitFor();
    expect(existsSync(policyFile())).toBe(false);
    await page.getByRole('button', { name: 'Undo all' }).click();
    await page.getByText('built-in', { exact: true }).waitFor();
  });

  it('is tested before it is saved, applies to the next request, and survives a reload', async () => {
    await page.getByRole('combobox', { name: 'Policy template' }).selectOption('custom terms');
    await page.getByRole('button', { name: 'Insert' }).click();
    await page.getByRole('textbox', { name: 'Text' }).fill('Grüße: Project Bluebird is late, says anna@firm.com');
    const found = page.getByRole('group', { name: 'Found' });
    await expect.poll(() => found.locator('mark').allTextContents()).toEqual(['Project Bluebirdcustom-dictionary', 'anna@firm.comemail-address']);
    const placeholders = await page.getByRole('group', { name: 'Sent as' }).locator('mark').allTextContents();
    expect(placeholders.map((p) => p.split('_')[0])).toEqual(['TERM', 'EMAIL']);
    await ask('before: Project Bluebird');
    expect(await sent('body:before')).toContain('Project Bluebird');
    await page.getByText('Valid, unsaved').waitFor();
    await editor().click();
    await page.keyboard.press('Control+s');
    await page.getByText('Policy applied').waitFor();
    expect(readFileSync(policyFile(), 'utf8')).toContain('always = ["Project Bluebird", "Contoso"]');
    await ask('after: Project Bluebird');
    const out = await sent('body:after');
    expect(out).not.toContain('Bluebird');
    // The test shows the placeholder in the form that is sent.
    const real = /TERM_\w+/.exec(out)?.[0] ?? '';
    expect(placeholders[0]!.replace(/[a-z0-9]/g, 'x')).toBe(real.replace(/[a-z0-9]/g, 'x'));
    await page.reload();
    await expect.poll(() => editor().textContent()).toContain('Project Bluebird');
    await page.getByText('active', { exact: true }).first().waitFor();
  });

  it('of a route is another file, selected by name', async () => {
    const files = page.getByRole('combobox', { name: 'Policy file' });
    await files.selectOption({ label: 'support.toml (support)' });
    await expect.poll(() => editor().textContent()).toContain('kinds = ["email-address"]');
    await page.getByRole('textbox', { name: 'Text' }).fill('mail a@b.com of Anna Keller');
    await expect.poll(() => page.getByRole('group', { name: 'Sent as' }).textContent()).toBe('mail ******* of Anna Keller');
    await ask('haiku: mail me at a@b.com, 4111 1111 1111 1111', { model: 'claude-haiku-4-5' });
    expect(await sent('body:haiku')).toContain('mail me at *******, 4111 1111 1111 1111');
  });

  it.each(POLICY_PRESETS.map((p) => [p.name, p] as const))('template "%s" is valid', async (_, preset) => {
    const text = withPreset('', preset);
    const answer = await world.api<{ ok: boolean; problems: unknown[] }>('/privacy/check', {
      method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ text }),
    });
    expect(answer.problems).toEqual([]);
  });
});

it('findings are charted by kind, host and route, and link to the flows', async () => {
  await ask('card 4111 1111 1111 1111 of a@b.com');
  await world.recorded(3, 'tag:found:*');
  await page.goto(`http://${world.admin}/privacy`);
  await page.getByRole('img', { name: /Findings over time, 24 hours/ }).waitFor();
  const routes = page.getByRole('table', { name: 'Route' });
  await expect.poll(() => routes.textContent()).toMatch(/gateway\d/);
  await routes.getByRole('link', { name: 'support' }).click();
  await expect.poll(() => page.locator('.drawn .line[data-id]').count()).toBe(1);
  expect(new URL(page.url()).searchParams.get('q')).toBe('tag:redact:route:support');
  expect(await page.locator('.drawn .badge').allTextContents()).toContain('redacted');
});

describe('keys, limits and budgets', () => {
  it('a key with a budget is created, used, counted, rejected beyond its limit, and revoked', async () => {
    await page.goto(`http://${world.admin}/keys`);
    await page.getByText('A virtual key stands for').waitFor();
    await page.getByLabel('Owner').fill('ada');
    await page.getByText('A key for ada. It may use any model').waitFor();
    await page.getByRole('textbox', { name: 'Models' }).fill('claude-*');
    await page.getByLabel('Budget per day (USD)').fill('5');
    await page.getByLabel('Requests per minute').fill('2');
    await page.getByLabel('Expires').selectOption('in 30 days');
    await page.getByText(/It may use the models claude-\* and any MCP tool, up to \$5\.00 a day and 2 requests a minute, and expires on 20/).waitFor();
    await page.getByText('The same as a command').click();
    await page.getByText(`keys add --owner ada --expires 30d --model 'claude-*' --money-per-day 5 --requests 2/m`).waitFor();
    await page.getByRole('button', { name: 'Create key' }).click();
    const key = (await page.getByRole('status').locator('code').textContent()) ?? '';
    const keys = page.getByRole('table', { name: 'Virtual keys' });
    await expect.poll(() => keys.textContent()).toMatch(/ada.*claude-\*.*2\/m requests, \$5 per day.*active/);

    expect((await ask('first', { key })).status).toBe(200);
    expect((await ask('second', { key })).status).toBe(200);
    expect((await ask('third', { key })).status).toBe(429);
    const usage = page.getByRole('table', { name: 'Usage since start' });
    const row = usage.getByRole('row', { name: /ada.*claude-sonnet-4-5/ });
    // User, model, requests, refused, input tokens (including cached) and output tokens, cost.
    await expect.poll(() => row.getByRole('cell').allTextContents().then((c) => c.slice(1, 7)), { timeout: 8000 })
      .toEqual(['ada', 'claude-sonnet-4-5 anthropic', '2', '1', '4.30k', '40']);
    expect(await row.getByRole('cell').last().textContent()).toMatch(/^\$0\.00\d+$/);
    const budgets = page.getByRole('table', { name: 'Budgets' });
    await expect.poll(() => budgets.textContent()).toMatch(/Budget per day \(USD\).*\$0\.\d+ of \$5/);
    await expect.poll(() => budgets.textContent()).toMatch(/each-key\s*Tokens per day.*of 100.?000/);
    await expect.poll(() => budgets.textContent()).toMatch(/each-key\s*Budget per month \(USD\).*of \$20/);
    await expect.poll(() => page.getByRole('table', { name: 'Rates' }).textContent()).toMatch(/Requests.*2 of 2/);
    await page.getByText('1 request was rejected since start').waitFor();

    // The bar of its budget, and a disabled key.
    const ada = keys.getByRole('row', { name: /ada/ });
    await expect.poll(() => ada.getByRole('meter', { name: /^Budget per day/ }).count()).toBe(1);
    await ada.getByRole('button', { name: 'Disable' }).click();
    await expect.poll(() => ada.textContent()).toContain('disabled');
    expect((await ask('while disabled', { key })).status).toBe(401);
    await ada.getByRole('button', { name: 'Enable' }).click();
    await expect.poll(() => ada.textContent()).toContain('active');
    await ada.getByRole('button', { name: 'Rotate' }).click();
    await page.getByRole('dialog', { name: /^Rotate/ }).getByRole('button', { name: 'Rotate' }).click();
    await expect.poll(() => page.getByRole('status').locator('code').textContent()).not.toBe(key);
    expect((await ask('with the old secret', { key })).status).toBe(401);
    await ada.getByRole('button', { name: 'Expiry' }).click();
    await page.getByRole('dialog', { name: /^Expiry/ }).getByRole('button', { name: 'Save' }).click();
    await expect.poll(() => ada.textContent()).toContain('never');

    await keys.getByRole('row', { name: /ada/ }).getByRole('button', { name: 'Revoke' }).click();
    await page.getByRole('dialog', { name: /^Revoke/ }).getByRole('button', { name: 'Revoke' }).click();
    await expect.poll(() => keys.getByRole('row', { name: /ada/ }).textContent()).toContain('revoked');
    expect((await ask('fourth', { key })).status).toBe(401);
  });

  it('an invalid request reports an error', async () => {
    await page.getByLabel('Owner').fill('evelyn');
    await page.getByLabel('Requests per minute').evaluate((n) => ((n as HTMLInputElement).step = 'any'));
    await page.getByLabel('Requests per minute').fill('0.5');
    await page.getByRole('button', { name: 'Create key' }).click();
    await page.getByText('is not a rate: write it as').waitFor();
    expect(await page.getByRole('row', { name: /evelyn/ }).count()).toBe(0);
  });
});

it('no external requests and no console errors', () => {
  expect([world.complaints, world.strays]).toEqual([[], []]);
});
