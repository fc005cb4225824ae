// Answers that come late: what was chosen, opened, typed or closed meanwhile stays as it is.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { World } from './world';

let world: World;
let page: Page;

beforeAll(async () => {
  world = await World.start();
  for (const path of ['/orders', '/missing']) await world.send(path);
  await world.recorded(2);
  page = await world.page('/');
});

afterAll(async () => {
  await world?.stop();
});

/** Holds the next requests to a path, in their order; each function that is returned lets one of them go on. */
async function held(path: string | RegExp, method = 'GET', count = 1): Promise<(() => void)[]> {
  const gates = Array.from({ length: count }, () => {
    let open!: () => void;
    const opened = new Promise<void>((done) => (open = done));
    return { opened, open };
  });
  let at = 0;
  await page.route(path, async (route) => {
    if (route.request().method() !== method || at >= count) return route.fallback();
    await gates[at++]!.opened;
    await route.fallback();
  });
  return gates.map((gate) => gate.open);
}

/** Waits until the answer to a request of this path is there, and was shown. */
async function answered(path: RegExp, release: () => void) {
  const done = page.waitForResponse((r) => path.test(r.url()));
  release();
  await (await done).finished();
  await page.waitForTimeout(100);
}

const notices = () => page.locator('.notice');

it('a request that is sent again from a dialog opens nothing once the dialog is closed', async () => {
  await page.goto(`http://${world.admin}/`);
  const rows = page.locator('.drawn .line[data-id]');
  const dialog = page.getByRole('dialog', { name: 'Edit and resend' });
  await rows.filter({ hasText: '/orders' }).first().click();
  await page.keyboard.press('e');
  const [release] = await held(/\/replay$/, 'POST');
  await dialog.getByRole('button', { name: 'Send' }).click();
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await rows.filter({ hasText: '/missing' }).first().click();
  const address = page.url();
  await page.keyboard.press('e');
  await dialog.getByLabel('URL').waitFor();
  await answered(/\/replay$/, release!);
  expect([await dialog.count(), await dialog.getByLabel('URL').inputValue(), page.url()]).toEqual([1, `http://${world.origin}/missing`, address]);
  // The notice leads there.
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await page.getByRole('button', { name: 'Show', exact: true }).click();
  await expect.poll(() => page.url()).not.toBe(address);
});

it('an access rule that is saved after its form was closed is replaced, and closes no other form', async () => {
  const json = { method: 'POST', headers: { 'content-type': 'application/json' } };
  await world.api('/approvals/rules', { ...json, body: JSON.stringify({ action: 'deny', hosts: ['late.test'] }) });
  await page.goto(`http://${world.admin}/approvals`);
  const row = page.getByRole('row').filter({ hasText: 'late.test' });
  await row.getByRole('button', { name: 'Edit' }).click();
  await page.getByRole('form', { name: 'Edit rule' }).getByLabel('Note').fill('edited');
  const [release] = await held(/\/approvals\/rules$/, 'POST');
  await page.getByRole('button', { name: 'Save rule' }).click();
  await page.getByRole('button', { name: 'Cancel' }).click();
  await page.getByRole('button', { name: 'New rule…' }).click();
  await page.getByRole('form', { name: 'New rule' }).getByLabel('Hosts').fill('being.written');
  const removed = page.waitForResponse((r) => r.request().method() === 'DELETE');
  release!();
  await removed;
  await expect.poll(() => row.allTextContents()).toEqual([expect.stringContaining('edited')]);
  expect(await page.getByRole('form', { name: 'New rule' }).getByLabel('Hosts').inputValue()).toBe('being.written');
});

it('revisions are those of the setting that is chosen', async () => {
  const settings = ['policy', 'rules', 'keys'].map((name) => ({ name, revision: 1, author: `of ${name}`, at: 1e15, restores: null, bytes: 1 }));
  await page.route('**/api/v1/fleet/settings', (route) => route.fulfill({ json: { enabled: true, settings, replicas: [] } }));
  await page.route('**/api/v1/fleet/settings/*/revisions', (route) => {
    const name = /settings\/(\w+)\//.exec(route.request().url())?.[1];
    const json = name === 'keys' ? { error: { kind: 'shared_store', message: 'the store does not answer' } } : { revisions: settings.filter((s) => s.name === name) };
    return route.fulfill({ json, status: name === 'keys' ? 503 : 200 });
  });
  await page.goto(`http://${world.admin}/settings`);
  const card = page.locator('#settings-revisions');
  await card.getByText('of policy').waitFor();
  const [release] = await held('**/fleet/settings/rules/revisions');
  await card.getByLabel('Setting').selectOption('Rules');
  await expect.poll(() => card.locator('tbody tr').count()).toBe(0);
  await card.getByLabel('Setting').selectOption('Redaction policy');
  await card.getByText('of policy').waitFor();
  await answered(/rules\/revisions$/, release!);
  expect(await card.locator('tbody tr').allTextContents()).toEqual([expect.stringContaining('of policy')]);
  // Those before must not be rolled back to under another name.
  await card.getByLabel('Setting').selectOption('Virtual keys and teams');
  await card.getByText('the store does not answer').waitFor();
  expect(await card.locator('tbody tr').count()).toBe(0);
  await page.unroute('**/api/v1/fleet/settings');
});

it('the audit trail goes on with what it was asked for', async () => {
  const asked: string[] = [];
  await page.route('**/api/v1/audit?*', (route) => {
    const search = new URL(route.request().url()).searchParams;
    const [text, before] = [search.get('text') ?? '', search.get('before') ?? ''];
    asked.push(`${text} ${before}`.trim());
    const record = { time: '2026-01-31T12:00:00Z', at: 1e15, actor: `${text || 'all'}${before}`, role: 'admin', client_ip: '', operation: '', target: '', status: 200 };
    return route.fulfill({ json: { records: [record], next: before ? null : 7 } });
  });
  await page.goto(`http://${world.admin}/settings`);
  const card = page.locator('#settings-audit');
  const names = () => card.locator('tbody tr td:nth-child(2)').allTextContents();
  await expect.poll(names).toEqual(['all']);
  const [slow] = await held(/audit\?.*text=slow/);
  await card.getByRole('searchbox').fill('slow');
  await card.getByRole('button', { name: 'Show', exact: true }).click();
  await card.getByRole('searchbox').fill('fast');
  await card.getByRole('button', { name: 'Show', exact: true }).click();
  await expect.poll(names).toEqual(['fast']);
  await answered(/text=slow/, slow!);
  expect(await names()).toEqual(['fast']);
  await card.getByRole('searchbox').fill('typed only');
  await card.getByRole('button', { name: 'Show older' }).click();
  await expect.poll(names).toEqual(['fast', 'fast7']);
  expect(asked).toEqual(['', 'fast', 'slow', 'fast 7']);
  await page.unroute('**/api/v1/audit?*');
});

it('older conversations follow those of their own filter', async () => {
  await world.send('/v1/messages', {
    method: 'POST', headers: { 'content-type': 'application/json', 'anthropic-version': '2023-06-01' },
    body: JSON.stringify({ model: 'claude-sonnet-4-5', messages: [{ role: 'user', content: 'hello' }] }),
  });
  const listed = () => world.api<{ conversations: object[] }>('/conversations').then((found) => found.conversations);
  await expect.poll(async () => (await listed()).length).toBe(1);
  const [one] = await listed();
  await page.route('**/api/v1/conversations?*', (route) => {
    const search = new URL(route.request().url()).searchParams;
    const [query, after] = [search.get('query') ?? '', search.get('after') ?? ''];
    return route.fulfill({ json: { conversations: [{ ...one, id: `c${query}${after}`, title: `of ${query || 'all'}${after}` }], next: after ? null : ' older' } });
  });
  await page.goto(`http://${world.admin}/conversations`);
  const titles = () => page.getByRole('button', { name: /^of / }).allTextContents().then((all) => all.map((text) => text.trim()));
  await expect.poll(titles).toEqual(['of all']);
  const [release] = await held(/conversations\?.*after=/);
  await page.getByRole('button', { name: 'More', exact: true }).click();
  const box = page.getByLabel('Filter conversations');
  await box.fill('model:x');
  await box.press('Enter');
  await expect.poll(titles).toEqual(['of model:x']);
  await answered(/conversations\?.*after=/, release!);
  expect(await titles()).toEqual(['of model:x']);
  await page.unroute('**/api/v1/conversations?*');
});

it('the page of ways to intercept opens no connection once it is left', async () => {
  await page.goto(`http://${world.admin}/rules`);
  await page.getByRole('heading', { name: 'Active rules' }).waitFor();
  const [release] = await held('**/api/v1/setup');
  await page.getByRole('link', { name: /^Intercept/ }).click();
  await page.getByRole('heading', { name: 'Intercept', level: 1 }).waitFor();
  await page.getByRole('link', { name: /^Rules/ }).click();
  await page.getByRole('heading', { name: 'Active rules' }).waitFor();
  let opened = 0;
  page.on('websocket', () => (opened += 1));
  await answered(/\/setup$/, release!);
  expect(opened).toBe(0);
});

describe('the rules', () => {
  it('are checked as they are now', async () => {
    await page.goto(`http://${world.admin}/rules`);
    const editor = page.getByRole('textbox', { name: 'Rules', exact: true });
    await expect.poll(() => editor.evaluate((n) => (n as HTMLElement).isContentEditable), { timeout: 15_000 }).toBe(true);
    const [first] = await held('**/api/v1/rules/check', 'POST');
    await editor.click();
    await page.keyboard.press('Control+A');
    const sent = page.waitForRequest('**/api/v1/rules/check');
    await page.keyboard.insertText('nonsense');
    await sent;
    await page.keyboard.press('Control+A');
    await page.keyboard.insertText('# nothing yet');
    await page.getByText('Valid, unsaved').waitFor();
    await answered(/\/rules\/check$/, first!);
    expect(await page.getByText('Valid, unsaved').count()).toBe(1);
    await page.keyboard.press('Control+A');
    await page.keyboard.press('Delete');
  });

  it('of a file that cannot be opened are not those that are shown', async () => {
    await page.route('**/api/v1/rules', async (route) => {
      const response = await route.fetch();
      const json = (await response.json()) as { files: string[] };
      await route.fulfill({ response, json: { ...json, files: [...json.files, '/nowhere.yaml'] } });
    });
    await page.reload();
    const file = page.getByLabel('File', { exact: true });
    await expect.poll(() => file.locator('option').count()).toBe(2);
    const before = await file.inputValue();
    await file.selectOption('/nowhere.yaml');
    await notices().first().waitFor();
    await expect.poll(() => file.inputValue()).toBe(before);
    await page.unroute('**/api/v1/rules');
  });

  it('for a flow are added once, not again by going back', async () => {
    const { flows: [flow] } = await world.api<{ flows: { id: string }[] }>('/flows?limit=1');
    await page.goto(`http://${world.admin}/rules?from=${flow!.id}`);
    await page.getByText('Added at the end of the file').waitFor();
    expect(page.url()).toBe(`http://${world.admin}/rules`);
  });
});

it('a policy that cannot be opened is not the one that is shown', async () => {
  await page.route('**/api/v1/privacy/policies', async (route) => {
    const response = await route.fetch();
    const json = (await response.json()) as { policies: object[] };
    await route.fulfill({ response, json: { ...json, policies: [...json.policies, { ...json.policies[0], file: '/nowhere.toml' }] } });
  });
  await page.goto(`http://${world.admin}/privacy`);
  const file = page.getByLabel('Policy file');
  const before = await file.inputValue();
  await file.selectOption('/nowhere.toml');
  await notices().first().waitFor();
  await expect.poll(() => file.inputValue()).toBe(before);
  await page.unroute('**/api/v1/privacy/policies');
});

it('a link is that of the address it was asked for', async () => {
  await page.goto(`http://${world.admin}/media`);
  const box = page.getByRole('textbox', { name: 'URL' });
  const [release] = await held('**/api/v1/media/links', 'POST');
  await box.fill('https://a.test/one.mp4');
  await page.getByRole('button', { name: 'Create link' }).click();
  await box.fill('https://a.test/two.mp4');
  await answered(/\/media\/links$/, release!);
  const rows = page.getByRole('region', { name: 'Created links' });
  await rows.getByText('one.mp4').waitFor();
  expect(await rows.getByText('two.mp4').count()).toBe(0);
});

describe('a collection', () => {
  const url = () => page.getByLabel('URL', { exact: true });
  const select = () => page.getByLabel('Collection', { exact: true });
  const saved = async (name: string) => (await world.api<{ collection: { requests: { name: string; url: string; body: string }[] } }>(`/collections/${name}`)).collection.requests;

  it('that cannot be opened is not the one that is shown and changed', async () => {
    const request = (name: string) => ({ name, method: 'POST', url: `http://${name}.test/`, headers: [], body: '', assertions: [] });
    for (const name of ['one', 'two']) {
      await world.api(`/collections/${name}`, {
        method: 'PUT', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ collection: { variables: [], requests: [request('a'), request('b')] } }),
      });
    }
    await page.goto(`http://${world.admin}/compose`);
    await select().selectOption('one');
    await page.getByRole('button', { name: 'POST a', exact: true }).waitFor();
    await page.route('**/api/v1/collections/two', (route) => route.fulfill({ status: 500, json: { error: { kind: 'internal', message: 'it cannot be read' } } }), { times: 1 });
    await select().selectOption('two');
    await page.getByText('it cannot be read').waitFor();
    await expect.poll(() => select().inputValue()).toBe('one');
  });

  it('takes a request that is saved slowly in its place, whatever is opened or typed meanwhile', async () => {
    const kept = page.waitForResponse((r) => r.request().method() === 'PUT');
    await page.getByRole('button', { name: 'POST a', exact: true }).click();
    await page.getByLabel('Body', { exact: true }).fill('saved');
    const [first, second] = await held('**/api/v1/collections/one', 'PUT', 2);
    await page.getByRole('button', { name: 'Save', exact: true }).click();
    await page.getByRole('button', { name: 'POST b', exact: true }).click();
    first!();
    await kept;
    await page.getByText('Saved in one').waitFor();
    expect(await page.getByRole('complementary').locator('[aria-current]').textContent()).toContain('b');
    await page.getByLabel('Body', { exact: true }).fill('of b');
    await page.getByRole('button', { name: 'Save', exact: true }).click();
    await page.getByLabel('Body', { exact: true }).fill('of b, and more');
    await answered(/collections\/one$/, second!);
    expect((await saved('one')).map((r) => [r.name, r.body])).toEqual([['a', 'saved'], ['b', 'of b']]);
    expect(await url().inputValue()).toBe('http://b.test/');
    // What was typed meanwhile is unsaved.
    const asked = page.waitForEvent('dialog');
    const reloaded = page.reload();
    await (await asked).accept();
    await reloaded;
  });
});

it('no external requests and no console errors', () => {
  expect([world.complaints.filter((c) => !c.startsWith('Applying inline style')), world.strays]).toEqual([[], []]);
});
