// The other tabs of the detail pane and the toolbar: pretty-printed bodies, raw bytes, rules, privacy, stars,
// saved views, the palette, and an unreachable instance.
import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { World } from './world';

let world: World;
let page: Page;
const host = () => `http://${world.admin}`;
const rows = () => page.locator('.drawn .line[data-id]');
const panel = () => page.getByRole('tabpanel');
const body = () => page.getByTestId('body-text');

const MULTIPART = [
  '--frontier', 'Content-Disposition: form-data; name="note"', '', 'hello', '--frontier',
  'Content-Disposition: form-data; name="file"; filename="a.json"', 'Content-Type: application/json', '', '{"a":1}', '--frontier--', '',
].join('\r\n');
const QUERY = JSON.stringify({ operationName: 'Me', query: 'query Me($id: ID!) { user(id: $id) { name } }', variables: { id: '7' } });
const ASKED = JSON.stringify({
  model: 'claude-sonnet-4-5', messages: [{ role: 'user', content: 'Card {{{REDACTED-credit-card}}} of EMAIL_ADDRESS_k3m2p9x0' }],
});

beforeAll(async () => {
  world = await World.start();
  for (const path of ['/page.html', '/feed.xml', '/live.m3u8', '/pack', '/proto', '/drawing.svg', '/orders', '/missing']) await world.send(path);
  const post = (path: string, type: string, text: string) => world.send(path, { method: 'POST', headers: { 'content-type': type }, body: text });
  await post('/echo?form', 'application/x-www-form-urlencoded', 'name=Zo%C3%AB+K&note=%3Cscript%3E');
  await post('/echo?parts', 'multipart/form-data; boundary=frontier', MULTIPART);
  await post('/graphql', 'application/json', QUERY);
  await post('/v1/messages', 'application/json', ASKED);
  await world.recorded(12);
  const { flows } = await world.api<{ flows: { id: string; path: string }[] }>('/flows?query=path:/v1/messages');
  await world.api(`/flows/${flows[0]!.id}`, {
    method: 'PATCH', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ add_tags: ['redacted', 'found:credit-card', 'found:email-address'] }),
  });
  page = await world.page('/');
});

afterAll(async () => {
  await world?.stop();
});

afterEach(() => {
  expect(world.complaints, 'the browser complained').toEqual([]);
  expect(world.strays, 'the page asked others').toEqual([]);
});

async function show(query: string, tab: string) {
  await page.goto(`${host()}/?${new URLSearchParams({ q: query }).toString()}`);
  await rows().first().click();
  await page.getByRole('tab', { name: tab, exact: true }).click();
}

describe('bodies pretty-printed by the server', () => {
  it.each([
    ['path:/page.html', 'Response', ['<main>\n  <h1>Hi</h1>', '    <br>']],
    ['path:/feed.xml', 'Response', ['<feed>\n  <entry id="1">\n    <title>TTTTT</title>']],
    ['path:/drawing.svg', 'Response', ['<svg', '  <script>window.pwned=1</script>']],
    ['path:/live.m3u8', 'Response', ['2 segments, 10.500 s, ended', '6.000     4.500  b.ts', '#EXTM3U']],
    ['path:/pack', 'Response', ['"a"', 'hi']],
    ['path:/proto', 'Response', ['150', 'abc']],
    ['query:form', 'Request', ['name = Zoë K', 'note = <script>']],
    ['query:parts', 'Request', ['part 1', 'name="note"', 'hello', 'part 2', '"a": 1']],
  ])('%s %s', async (query, tab, wanted) => {
    await show(query, tab);
    const pretty = panel().getByRole('button', { name: 'Pretty' });
    // Forms and multipart bodies begin as tables.
    if (query.startsWith('query:')) await pretty.click();
    expect(await pretty.getAttribute('aria-pressed')).toBe('true');
    for (const words of wanted) await expect.poll(() => body().textContent()).toContain(words);
    await panel().getByRole('button', { name: 'Hex' }).click();
    await expect.poll(() => body().textContent()).toContain('00000000  ');
  });

  it('GraphQL next to its JSON', async () => {
    await show('path:/graphql', 'Request');
    await panel().getByRole('button', { name: 'Tree' }).click();
    await expect.poll(() => panel().textContent()).toContain('"operationName"');
    await panel().getByRole('button', { name: 'Pretty' }).click();
    await expect.poll(() => body().textContent()).toContain('query Me($id: ID!) {\n  user(id: $id) {\n    name');
    expect(await body().textContent()).toContain('# variables');
  });
});

describe('more tabs', () => {
  it('raw bytes as text and hex', async () => {
    await show('query:form', 'Raw');
    const raw = page.getByTestId('raw').first();
    await expect.poll(() => raw.textContent()).toContain('POST ');
    expect(await raw.textContent()).toContain('name=Zo%C3%AB+K');
    await panel().getByRole('button', { name: 'Hex' }).click();
    await expect.poll(() => raw.textContent()).toContain('00000000  50 4f 53 54');
  });

  it('kinds and locations of redactions, never a value', async () => {
    await show('path:/v1/messages', 'Privacy');
    await expect.poll(() => panel().textContent()).toContain('redacted before it was sent');
    const table = panel().getByRole('row');
    await expect.poll(() => table.nth(1).textContent()).toContain('credit-card$.messages[0].content5');
    expect(await table.nth(2).textContent()).toContain('email-address');
    await panel().getByRole('button', { name: 'credit-card' }).click();
    await expect.poll(() => new URL(page.url()).searchParams.get('q')).toContain('tag:found:credit-card');
    await expect.poll(() => rows().count()).toBe(1);
    expect(await rows().first().locator('.badge').allTextContents()).toContain('redacted');
  });

  it('rule explanations, and a link to write a rule for the flow', async () => {
    await show('path:/orders', 'Rules');
    await expect.poll(() => panel().textContent()).toContain('No rules.');
    await panel().getByRole('link', { name: 'New rule for this flow' }).click();
    await page.getByRole('heading', { name: 'Rules', level: 1 }).waitFor();
    await expect.poll(() => page.getByRole('textbox', { name: 'Rules' }).textContent()).toContain('path:/orders');
    await page.getByRole('button', { name: 'Save and apply' }).click();
    await expect.poll(() => page.getByRole('main').textContent()).toContain('like 127.0.0.1');
    await world.send('/orders');
    await show('path:/orders', 'Rules');
    await expect.poll(() => panel().textContent()).toContain('matched');
    await expect.poll(() => rows().first().locator('.badge').allTextContents()).toContain('rule');
  });
});

it('help links to the guide of the page, which is part of the instance', async () => {
  await page.goto(`${host()}/rules`);
  await page.getByRole('heading', { level: 1 }).waitFor();
  await page.keyboard.press('?');
  const guide = page.getByRole('link', { name: 'Guide to Rules' });
  const [opened] = await Promise.all([page.context().waitForEvent('page'), guide.click()]);
  await opened.getByRole('heading', { level: 1, name: 'Rules' }).waitFor();
  expect(new URL(opened.url()).pathname).toBe('/docs/guides/rules.html');
  await opened.getByRole('navigation', { name: 'Documentation' }).getByRole('link', { name: 'Query language' }).click();
  await opened.getByRole('heading', { level: 1 }).waitFor();
  expect(new URL(opened.url()).pathname).toBe('/docs/reference/query.html');
  await opened.close();
  await page.keyboard.press('Escape');
});

describe('stars, views and the palette', () => {
  it('m stars and unstars', async () => {
    await page.goto(`${host()}/?q=path:/missing`);
    await rows().first().waitFor();
    await page.keyboard.press('j');
    await page.keyboard.press('m');
    await expect.poll(() => rows().first().locator('.badge').allTextContents()).toContain('★');
    await page.getByRole('button', { name: '★ Starred' }).click();
    await expect.poll(() => rows().count()).toBe(1);
    await page.keyboard.press('j');
    await page.keyboard.press('m');
    await expect.poll(async () => (await world.api<{ count: number }>('/flows/count?query=tag:starred')).count).toBe(0);
  });

  it('views are saved, shown again after a reload, and removed', async () => {
    await page.goto(`${host()}/?q=status:404`);
    await rows().first().waitFor();
    await page.getByRole('button', { name: /^Views/ }).click();
    await page.getByRole('menuitem', { name: 'Save this view…' }).click();
    await page.keyboard.type('not there');
    await page.keyboard.press('Enter');
    await page.goto(`${host()}/?q=status:200`);
    await page.getByRole('button', { name: /^Views/ }).click();
    await page.getByRole('menuitem', { name: 'Save this view…' }).click();
    await page.keyboard.type('there');
    await page.keyboard.press('Enter');
    await page.goto(`${host()}/`);
    await page.getByRole('button', { name: /^Views/ }).click();
    await page.getByRole('menuitem', { name: 'not there' }).click();
    await expect.poll(() => new URL(page.url()).searchParams.get('q')).toBe('status:404');
    await page.getByRole('button', { name: /^Views/ }).click();
    await page.getByRole('menuitem', { name: 'Remove views…' }).click();
    const kept = () => page.getByRole('dialog').getByRole('button', { name: /^Remove / }).evaluateAll((all) => all.map((b) => b.ariaLabel));
    await page.getByRole('button', { name: 'Remove not there' }).click();
    await expect.poll(kept).toEqual(['Remove there']);
    await page.keyboard.press('Escape');
    // Undone, it has its place again.
    await page.getByRole('button', { name: 'Undo', exact: true }).last().click();
    await page.getByRole('button', { name: /^Views/ }).click();
    await page.getByRole('menuitem', { name: 'Remove views…' }).click();
    await expect.poll(kept).toEqual(['Remove not there', 'Remove there']);
    for (const name of ['not there', 'there']) await page.getByRole('button', { name: `Remove ${name}`, exact: true }).click();
    await page.keyboard.press('Escape');
    await page.reload();
    await page.getByRole('button', { name: /^Views/ }).click();
    expect(await page.getByRole('menuitem', { name: 'not there' }).count()).toBe(0);
    await page.keyboard.press('Escape');
  });

  it.each([['har', /^Export, clear or import/], ['breakpoint', /^Breakpoints/], ['ca cert', /CA certificate/], ['record', /^Settings: recording/], ['dark', /Theme: dark/]])('Ctrl+K finds “%s” on any page', async (typed, entry) => {
    await page.goto(`${host()}/media`);
    await page.getByRole('heading', { level: 1 }).waitFor();
    await page.keyboard.press('Control+k');
    await page.keyboard.type(typed);
    await page.getByRole('option', { name: entry }).waitFor();
    await page.keyboard.press('Escape');
  });

  it('Ctrl+K finds pages, actions and filters', async () => {
    await page.goto(`${host()}/`);
    await rows().first().waitFor();
    await page.keyboard.press('Control+k');
    await page.keyboard.type('priva');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Privacy', level: 1 }).waitFor();
    await page.keyboard.press('Control+k');
    await page.keyboard.type('status:404');
    await page.keyboard.press('Enter');
    await expect.poll(() => new URL(page.url()).searchParams.get('q')).toBe('status:404');
    await expect.poll(() => rows().count()).toBe(1);
    await page.keyboard.press('j');
    await page.keyboard.press('Control+k');
    await page.keyboard.type('copy as curl');
    await page.keyboard.press('Enter');
    await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toContain('curl ');
  });
});

it('pages load the editor only where it is used', async () => {
  const asked: string[] = [];
  const other = await world.page('/');
  other.on('request', (r) => asked.push(new URL(r.url()).pathname));
  await other.reload();
  await other.locator('.drawn .line[data-id]').first().waitFor();
  expect(asked.filter((p) => p.includes('codemirror'))).toEqual([]);
  await other.goto(`${host()}/rules`);
  await expect.poll(() => asked.filter((p) => p.includes('codemirror')).length).toBe(1);
  await other.context().close();
});

it('reports that the instance is unreachable, and reconnects', async () => {
  await page.goto(`${host()}/`);
  await rows().first().waitFor();
  await page.route('**/api/v1/**', (route) => route.abort());
  const gone = page.getByRole('alert').filter({ hasText: 'cannot be reached' });
  await gone.waitFor();
  expect(await rows().count()).toBeGreaterThan(5);
  await page.unroute('**/api/v1/**');
  await page.getByText('Connected again').waitFor();
  expect(await gone.count()).toBe(0);
  // Console errors of the failed requests are expected.
  world.complaints.length = 0;
});

it('shows a loading state for a slow instance, and its errors', async () => {
  await page.route('**/api/v1/flows?*', async (route) => {
    await new Promise((done) => setTimeout(done, 900));
    await route.continue();
  });
  await page.goto(`${host()}/`);
  await page.getByText('Searching…').waitFor();
  await rows().first().waitFor();
  await page.unroute('**/api/v1/flows?*');
  await page.route('**/api/v1/flows?*', (route) => route.fulfill({ status: 500, json: { error: { kind: 'internal', message: 'the disk is gone', remedy: 'look for it' } } }));
  await page.reload();
  await page.getByText('the disk is gone: look for it').waitFor();
  await page.unroute('**/api/v1/flows?*');
  await page.getByRole('button', { name: 'Retry' }).click();
  await rows().first().waitFor();
});
