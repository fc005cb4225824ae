// Pages of rules, findings, approvals and the doctor.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PRESETS, withRule } from '../src/rules/presets';
import { World } from './world';

let world: World;
let page: Page;

beforeAll(async () => {
  world = await World.start();
  page = await world.page('/rules');
});

afterAll(async () => {
  await world?.stop();
});

describe('rules', () => {
  it('explain how to add some, and why flows match', async () => {
    await world.send('/orders');
    await page.goto(`http://${world.admin}/rules`);
    await page.getByText('No active rules').waitFor();
    const { flows } = await world.api<{ flows: { id: string }[] }>('/flows');
    await page.getByRole('combobox', { name: 'Flow' }).fill(flows[0]!.id);
    await page.getByRole('button', { name: 'Explain' }).click();
    await page.getByText('No rules.').waitFor();
  });

  it('templates are valid', async () => {
    let text = '';
    for (const preset of PRESETS) text = withRule(text, preset.text);
    const checked = await world.api<{ ok: boolean; problems: unknown[]; rules: { rules: unknown[] } }>('/rules/check', {
      method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ text, name: 'rules.yaml' }),
    });
    expect(checked.problems).toEqual([]);
    expect(checked.rules.rules.length).toBe(PRESETS.length);
  });

  it('are completed by schema and query language, checked, saved, counted and explained', async () => {
    await page.goto(`http://${world.admin}/rules`);
    const editor = page.getByRole('textbox', { name: 'Rules' });
    await expect.poll(() => editor.evaluate((n) => (n as HTMLElement).isContentEditable), { timeout: 15_000 }).toBe(true);
    await page.getByLabel('Preset').selectOption('tag errors');
    await page.getByRole('button', { name: 'Insert' }).click();
    await expect.poll(() => editor.textContent()).toContain('tag: broken');
    await editor.click();
    await page.keyboard.press('Control+End');
    await page.keyboard.press('Enter');
    await page.keyboard.press('Home');
    await page.keyboard.press('Shift+End');
    await page.keyboard.press('Delete');
    await page.keyboard.type('  - when: stat');
    await page.getByRole('option', { name: /status:/ }).waitFor();
    await page.keyboard.press('Escape');
    await page.keyboard.type('us:404');
    await page.keyboard.press('Enter');
    await page.keyboard.type('th');
    await page.getByRole('option', { name: 'then' }).waitFor();
    // The completion list ignores keys for a moment after it opens.
    await page.waitForTimeout(200);
    await page.keyboard.press('Enter');
    await page.keyboard.type('blok');
    await page.getByText('1 error').waitFor();
    for (let i = 0; i < 4; i += 1) await page.keyboard.press('Backspace');
    await page.keyboard.type('{ tag: gone }');
    await page.getByText('Valid, unsaved').waitFor();
    await page.keyboard.press('Control+s');
    await page.getByText('Rules applied').waitFor();
    await world.send('/missing');
    await expect.poll(() => page.getByRole('row', { name: /status:404/ }).textContent(), { timeout: 8000 }).toMatch(/1$/);
    const { flows } = await world.api<{ flows: { id: string }[] }>('/flows?query=tag:gone');
    await page.getByRole('combobox', { name: 'Flow' }).fill(flows[0]!.id);
    await page.getByRole('button', { name: 'Explain' }).click();
    await expect.poll(() => page.getByRole('main').textContent()).toContain('did not match');
  });
});

describe('redaction findings', () => {
  it('are charted by kind and host, and link to the flows', async () => {
    await world.send('/with-a-name');
    await world.recorded(1, 'path:/with-a-name');
    const { flows } = await world.api<{ flows: { id: string }[] }>('/flows?query=path:/with-a-name');
    const marks = { add_tags: ['redacted', 'found:person'] };
    await world.api(`/flows/${flows[0]!.id}`, { method: 'PATCH', headers: { 'content-type': 'application/json' }, body: JSON.stringify(marks) });
    await page.goto(`http://${world.admin}/privacy`);
    await page.getByRole('img', { name: /Findings over time, 24 hours/ }).waitFor();
    await page.getByRole('button', { name: '7 days' }).click();
    await page.getByRole('img', { name: /Findings over time, 7 days/ }).waitFor();
    await page.getByRole('link', { name: 'person' }).click();
    await page.locator('.drawn .line[data-id]').first().waitFor();
    expect(new URL(page.url()).searchParams.get('q')).toBe('tag:found:person');
  });
});

describe('approvals', () => {
  it('rules are added, edited and removed by a form', async () => {
    await page.goto(`http://${world.admin}/approvals`);
    await page.getByRole('button', { name: 'New rule…' }).click();
    const form = page.getByRole('form', { name: 'New rule' });
    await form.getByLabel('Action').selectOption('deny');
    await form.getByLabel('Hosts').fill('tracker.test, *.ads.test');
    await form.getByLabel('Expires after').selectOption('1h');
    await page.keyboard.press('Enter');
    const row = page.getByRole('row').filter({ hasText: 'tracker.test' });
    await expect.poll(() => row.textContent()).toMatch(/deny\s*to tracker\.test, \*\.ads\.test\s*global until \d{2}:\d{2}:\d{2}/);
    await row.getByRole('button', { name: 'Edit' }).click();
    const edit = page.getByRole('form', { name: 'Edit rule' });
    expect(await edit.getByLabel('Hosts').inputValue()).toBe('tracker.test, *.ads.test');
    await edit.getByLabel('Action').selectOption('allow');
    await edit.getByLabel('Expires after').selectOption('');
    await edit.getByLabel('Note').fill('measured');
    await edit.getByRole('button', { name: 'Save rule' }).click();
    await expect.poll(() => row.textContent()).toMatch(/allow.*measured.*global\s*0/);
    expect(await row.count()).toBe(1);
    await row.getByRole('button', { name: 'Remove' }).click();
    await expect.poll(() => row.count()).toBe(0);
  });

  it('hold flows until a key decides, and remember the decision', async () => {
    await page.goto(`http://${world.admin}/approvals`);
    await page.getByRole('button', { name: 'ask', exact: true }).click();
    await page.getByText('Ask when no rule decides').waitFor();
    // An unresolvable name: allowed requests fail with 502 (DNS), denied ones with 403.
    const ask = (path: string) => world.send(path, { authority: 'held.invalid' });
    const first = ask('/held/one');
    const card = page.getByRole('article');
    await expect.poll(() => card.count(), { timeout: 8000 }).toBe(1);
    expect(await page.title()).toMatch(/^\(1\) Approvals/);
    await page.keyboard.press('a');
    // Removed at once, so that the next key cannot apply to it.
    expect(await card.count()).toBe(0);
    expect(await first).toBe(502);
    const second = ask('/held/two');
    await expect.poll(() => card.count(), { timeout: 8000 }).toBe(1);
    await page.keyboard.press('d');
    expect(await second).toBe(403);
    const third = ask('/held/three');
    await expect.poll(() => card.count(), { timeout: 8000 }).toBe(1);
    await page.keyboard.press('A');
    await page.getByRole('button', { name: 'Allow for 1 hour' }).click();
    expect(await third).toBe(502);
    expect(await ask('/held/four')).toBe(502);
    await expect.poll(() => page.getByRole('main').textContent(), { timeout: 12_000 }).toMatch(/allow.*deny.*allow/);
    await page.getByRole('button', { name: 'observe', exact: true }).click();
    await page.getByText('Allow and record').waitFor();
    await page.getByRole('button', { name: 'Remove' }).first().click();
    await page.getByRole('button', { name: 'Suggest rules from recorded traffic' }).click();
    await expect.poll(() => page.getByRole('main').textContent()).toMatch(/flows/);
    // The suggestion becomes a rule and disappears.
    const suggestion = page.locator('.suggestion').filter({ hasText: '127.0.0.1' });
    const words = await suggestion.first().locator('.mono').textContent();
    // Not if it is refused.
    await page.route('**/approvals/rules', (route) => (route.request().method() === 'POST' ? route.fulfill({ status: 409, json: { error: { kind: 'x', message: 'not now' } } }) : route.continue()));
    await suggestion.first().getByRole('button', { name: 'Add rule' }).click();
    await page.getByText('not now').waitFor();
    await page.unrouteAll({ behavior: 'wait' });
    await suggestion.first().getByRole('button', { name: 'Add rule' }).click();
    const rules = page.getByRole('row').filter({ hasText: words! });
    await expect.poll(() => rules.count()).toBe(1);
    await expect.poll(() => page.locator('.suggestion').filter({ hasText: words! }).count()).toBe(0);
    const before = Number((await rules.getByRole('cell').nth(3).textContent()) ?? 0);
    await page.getByRole('button', { name: 'enforce', exact: true }).click();
    await page.getByText('Deny what no rule allows').waitFor();
    expect(await world.send('/orders')).toBe(200);
    await expect.poll(async () => Number(await rules.getByRole('cell').nth(3).textContent()), { timeout: 8000 }).toBeGreaterThan(before);
    expect(await ask('/held/five')).toBe(403);
    await page.getByRole('button', { name: 'observe', exact: true }).click();
    await page.getByText('Allow and record').waitFor();
  });
});

it('the deletion of a secret can be undone', async () => {
  await page.goto(`http://${world.admin}/approvals`);
  const card = page.locator('.card', { has: page.getByRole('heading', { name: 'Secrets' }) });
  await card.getByLabel('Name').fill('token');
  await card.getByLabel('Secret', { exact: true }).fill('s3cret-value');
  await card.getByLabel('Bound to').fill('api.example.com');
  await card.getByRole('button', { name: 'Add secret' }).click();
  const row = card.getByRole('row', { name: /^token/ });
  const secretCount = async () => (await world.api<{ secrets: unknown[] }>('/secrets')).secrets.length;
  await row.getByRole('button', { name: 'Delete' }).click();
  await expect.poll(() => row.count()).toBe(0);
  await page.getByRole('button', { name: 'Undo', exact: true }).last().click();
  await row.waitFor();
  expect(await secretCount()).toBe(1);
  await row.getByRole('button', { name: 'Delete' }).click();
  // Its notice ends with the page.
  await page.getByRole('link', { name: /^Rules/ }).click();
  await page.getByRole('link', { name: /^Approvals/ }).click();
  await page.getByRole('heading', { name: 'Secrets' }).waitFor();
  expect(await row.count()).toBe(0);
  await page.goto(`http://${world.admin}/rules`);
  await expect.poll(secretCount).toBe(0);
});

it('a secret is replaced by deleting and adding it, and what was typed stays if that fails', async () => {
  await page.goto(`http://${world.admin}/approvals`);
  const card = page.locator('.card', { has: page.getByRole('heading', { name: 'Secrets' }) });
  const add = async (value: string, host: string) => {
    await card.getByLabel('Name').fill('replaced');
    await card.getByLabel('Secret', { exact: true }).fill(value);
    await card.getByLabel('Bound to').fill(host);
    await card.getByRole('button', { name: 'Add secret' }).click();
  };
  const row = card.getByRole('row', { name: /^replaced/ });
  await add('s3cret-before', 'before.example.com');
  await row.getByRole('cell', { name: 'before.example.com' }).waitFor();
  await add('s3cret-after', 'after.example.com');
  await page.getByText("'replaced' is taken by another secret").waitFor();
  expect(await card.getByLabel('Secret', { exact: true }).inputValue()).toBe('s3cret-after');
  await row.getByRole('button', { name: 'Delete' }).click();
  await card.getByRole('button', { name: 'Add secret' }).click();
  await row.getByRole('cell', { name: 'after.example.com' }).waitFor();
  expect(await card.getByLabel('Secret', { exact: true }).inputValue()).toBe('');
  // The deletion is carried out, and hence can no longer be undone.
  expect(await page.getByRole('button', { name: 'Undo', exact: true }).count()).toBe(0);
  const { secrets } = await world.api<{ secrets: { label: string; hosts: string[] }[] }>('/secrets');
  expect(secrets.filter((s) => s.label === 'replaced').map((s) => s.hosts.length)).toEqual([1]);
  await row.getByRole('button', { name: 'Delete' }).click();
  await page.goto(`http://${world.admin}/rules`);
  await expect.poll(async () => (await world.api<{ secrets: unknown[] }>('/secrets')).secrets.length).toBe(0);
});

it('several approvals are decided at once: those that are selected, or all of a host', async () => {
  await page.goto(`http://${world.admin}/approvals`);
  await page.getByRole('button', { name: 'ask', exact: true }).click();
  await page.getByText('Ask when no rule decides').waitFor();
  const ask = (host: string, path: string) => world.send(path, { authority: `${host}.invalid` });
  const asked = [ask('one', '/a'), ask('two', '/b'), ask('two', '/c'), ask('three', '/d')];
  const card = page.getByRole('article');
  const bar = page.getByRole('toolbar', { name: 'Several pending requests' });
  await expect.poll(() => bar.textContent(), { timeout: 8000 }).toMatch(/Select all [34]/);
  const boxes = await card.count();
  await page.getByRole('button', { name: 'By host ▾' }).click();
  await page.getByRole('menuitem', { name: /^Deny all of two\.invalid once/ }).click();
  expect([await asked[1], await asked[2]]).toEqual([403, 403]);
  await expect.poll(() => card.count()).toBeLessThan(boxes);
  await page.getByRole('checkbox', { name: 'Select GET one.invalid' }).check();
  await expect.poll(() => bar.textContent()).toContain('1 of 2 selected');
  await bar.getByRole('button', { name: 'Allow selected once' }).click();
  expect(await asked[0]).toBe(502);
  await expect.poll(() => card.count()).toBe(1);
  // One alone has its own buttons.
  expect(await bar.count()).toBe(0);
  await page.keyboard.press('d');
  expect(await asked[3]).toBe(403);
  await page.getByRole('button', { name: 'observe', exact: true }).click();
  await page.getByText('Allow and record').waitFor();
});

it('the approval that was chosen stays chosen when an earlier one goes', async () => {
  await page.goto(`http://${world.admin}/approvals`);
  await page.getByRole('button', { name: 'ask', exact: true }).click();
  await page.getByText('Ask when no rule decides').waitFor();
  const card = page.getByRole('article');
  const asked: Promise<number>[] = [];
  for (const host of ['first', 'second', 'third']) {
    asked.push(world.send('/', { authority: `${host}.invalid` }));
    await expect.poll(() => card.count(), { timeout: 8000 }).toBe(asked.length);
  }
  await page.keyboard.press('j');
  const { pending } = await world.api<{ pending: { id: string; host?: string }[] }>('/pending');
  const first = pending.find((item) => item.host === 'first.invalid');
  await world.api(`/pending/${first!.id}`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"action":"deny"}' });
  await expect.poll(() => card.count()).toBe(2);
  await page.keyboard.press('d');
  expect([await asked[0], await asked[1]]).toEqual([403, 403]);
  await expect.poll(() => card.allTextContents()).toEqual([expect.stringContaining('third.invalid')]);
  await page.keyboard.press('d');
  expect(await asked[2]).toBe(403);
  await page.getByRole('button', { name: 'observe', exact: true }).click();
  await page.getByText('Allow and record').waitFor();
});

it('the doctor reports its findings', async () => {
  await page.goto(`http://${world.admin}/settings`);
  await page.getByRole('button', { name: 'Run checks', exact: true }).click();
  await page.getByRole('button', { name: 'Run again' }).waitFor({ timeout: 40_000 });
  await expect.poll(() => page.getByRole('main').textContent()).toContain('data directory');
}, 60_000);

it('an image in a conversation is loaded from the recorded request', async () => {
  const png = 'iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAFklEQVR4nGP8z8DAwMDAxMDAwMDAAAANHQEDasKb6QAAAABJRU5ErkJggg==';
  const content = [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: png } }, { type: 'text', text: 'What is this picture?' }];
  const body = JSON.stringify({ model: 'claude-sonnet-4-5', max_tokens: 9, messages: [{ role: 'user', content }] });
  await world.send('/v1/messages', { method: 'POST', headers: { 'content-type': 'application/json', 'anthropic-version': '2023-06-01' }, body });
  await page.goto(`http://${world.admin}/conversations`);
  await page.getByText('What is this picture?').first().click();
  const picture = page.getByRole('article').getByRole('img');
  await expect.poll(() => picture.evaluate((i: HTMLImageElement) => i.naturalWidth), { timeout: 8000 }).toBe(2);
});

it('no external requests and no console errors', () => {
  expect([world.complaints, world.strays]).toEqual([[], []]);
});
