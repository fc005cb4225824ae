// The traffic page with real traffic: keys, tabs, live flows, hostile bodies.
import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { HOSTILE } from './origin';
import { World } from './world';

let world: World;
let page: Page;
const host = () => `http://${world.admin}`;

beforeAll(async () => {
  world = await World.start();
  for (const path of ['/orders', '/gzip', '/br', '/picture.png', '/false.png', '/drawing.svg', '/text', '/binary', '/missing', '/broken']) {
    await world.send(path);
  }
  await world.send('/cut');
  await world.send('/hostile?q=<script>window.pwned=1</script>', { headers: { 'x-evil': HOSTILE } });
  await world.send('/hostile.json');
  await world.send('/echo?x=1', { method: 'POST', headers: { 'content-type': 'application/json', 'x-test': 'one' }, body: '{"a":1}' });
  await Promise.all([world.webSocket(), world.send('/events')]);
  await world.recorded(16);
  page = await world.page('/');
});

afterAll(async () => {
  await world?.stop();
});

afterEach(() => {
  expect(world.complaints, 'the browser complained').toEqual([]);
  expect(world.strays, 'the page asked others').toEqual([]);
});

/** Opens the first flow that matches a query on a tab. */
async function show(query: string, tab = 'overview') {
  await page.goto(`${host()}/?${new URLSearchParams({ q: query }).toString()}`);
  await page.locator('.drawn .line[data-id]').first().click();
  await page.getByRole('tab', { name: new RegExp(tab, 'i') }).click();
}

const rows = () => page.locator('.drawn .line[data-id]');
const selected = () => page.locator('.drawn .line[aria-selected=true]');
const panel = () => page.getByRole('tabpanel');
const press = async (...keys: string[]) => {
  for (const key of keys) await page.keyboard.press(key);
};

async function fresh(query = '') {
  await page.goto(`${host()}/${query ? `?${new URLSearchParams({ q: query }).toString()}` : ''}`);
  await rows().first().waitFor();
}

describe('authentication', () => {
  it('is required', async () => {
    const response = await fetch(`${host()}/`);
    expect(response.status).toBe(401);
    expect(await response.text()).not.toContain('/assets/');
    expect((await fetch(`${host()}/settings`)).status).toBe(401);
  });
  it('leaves no token in the URL', () => expect(page.url()).toBe(`${host()}/`));
  it('serves compressed files with long caching, and an uncached page', async () => {
    const headers = { authorization: `Bearer ${world.token}`, 'accept-encoding': 'br' };
    const index = await fetch(`${host()}/overview`, { headers });
    expect(index.headers.get('cache-control')).toBe('no-store');
    const policy = index.headers.get('content-security-policy') ?? '';
    expect(policy).toContain("default-src 'self'");
    expect(policy).not.toContain('unsafe');
    const html = await index.text();
    expect(html).not.toMatch(/<script>|<style|style=|onload=/);
    let bytes = 0;
    for (const [, path] of html.matchAll(/(?:src|href)="(\/[^"]+)"/g)) {
      const file = await fetch(`${host()}${path}`, { headers });
      expect(file.status, path).toBe(200);
      expect(file.headers.get('x-content-type-options')).toBe('nosniff');
      if (path?.startsWith('/assets/')) {
        expect(file.headers.get('cache-control')).toContain('immutable');
        expect(file.headers.get('content-encoding')).toBe('br');
      }
      bytes += Number(file.headers.get('content-length'));
    }
    expect(bytes).toBeGreaterThan(10_000);
    expect(bytes).toBeLessThan(200_000);
  });
  it('serves only its own files', async () => {
    const headers = { authorization: `Bearer ${world.token}` };
    for (const path of ['/assets/none.js', '/%2e%2e/Cargo.toml', '/index.html.br']) {
      expect((await fetch(host() + path, { headers })).status, path).toBe(404);
    }
    const api = await fetch(`${host()}/api/v1/none`, { headers });
    expect([api.status, api.headers.get('content-type')]).toEqual([404, 'application/json']);
  });
});

describe('keys', () => {
  it('move the selection', async () => {
    await fresh();
    await press('j');
    const first = await selected().getAttribute('data-id');
    expect(first).toBe(await rows().first().getAttribute('data-id'));
    await press('j', 'ArrowDown');
    expect(await selected().getAttribute('aria-rowindex')).toBe('4');
    await press('k', 'ArrowUp');
    expect(await selected().getAttribute('data-id')).toBe(first);
    await press('G');
    const last = String((await rows().count()) + 1);
    await expect.poll(() => selected().getAttribute('aria-rowindex')).toBe(last);
    await press('g', 'g');
    await expect.poll(() => selected().getAttribute('data-id')).toBe(first);
    await press('End', 'Home');
    await expect.poll(() => selected().getAttribute('data-id')).toBe(first);
    await press('PageDown', 'PageUp', ' ', 'Shift+ ');
    expect(await selected().getAttribute('data-id')).toBe(first);
  });

  it('open and close a flow, and update the URL', async () => {
    await fresh();
    await press('j', 'Enter');
    await panel().waitFor();
    const id = await selected().getAttribute('data-id');
    expect(page.url()).toContain(`id=${id}`);
    await press('2');
    await expect.poll(() => page.url()).toContain('tab=request');
    await page.reload();
    const { path } = await world.api<{ path: string }>(`/flows/${id}`).then((f) => (f as unknown as { request: { path: string } }).request);
    await expect.poll(() => panel().textContent()).toContain(`GET ${path}`);
    await press('Escape');
    await expect.poll(() => page.locator('.pane').count()).toBe(0);
    expect(page.url()).not.toContain('id=');
  });

  it('a flow opens with request and response side by side, then on the tab that was chosen last', async () => {
    await page.evaluate(() => localStorage.removeItem('flow.tab'));
    await fresh('path:/echo');
    await press('j', 'Enter');
    const [request, response] = [panel().getByRole('region', { name: 'Request' }), panel().getByRole('region', { name: 'Response' })];
    await request.getByText('POST /echo?x=1 HTTP/1.1').waitFor();
    await response.getByText('HTTP/1.1 200').waitFor();
    const [left, right] = [await request.boundingBox(), await response.boundingBox()];
    expect(right!.x).toBeGreaterThan(left!.x + left!.width);
    await page.getByRole('tab', { name: 'Raw' }).click();
    await fresh('path:/missing');
    await press('j', 'Enter');
    await page.getByRole('tab', { name: 'Raw', selected: true }).waitFor();
    await page.evaluate(() => localStorage.removeItem('flow.tab'));
  });

  it('switch tabs', async () => {
    await show('is:websocket');
    const current = () => page.locator('.pane [role=tab][aria-selected=true]').textContent();
    for (const [key, name] of [['2', 'Request'], ['3', 'Response'], ['4', 'Messages'], ['1', 'Overview'], ['ArrowRight', 'Exchange'], ['l', 'Request'], ['h', 'Exchange'], ['ArrowLeft', 'Overview'], ['b', 'Exchange']] as const) {
      await press(key);
      expect(await current(), key).toContain(name);
    }
  });

  it('? shows them all, and Escape closes', async () => {
    await fresh();
    await press('?');
    const help = page.getByRole('dialog', { name: 'Help' });
    await expect.poll(() => help.textContent()).toContain('Query language');
    expect(await help.locator('kbd').count()).toBeGreaterThan(30);
    await press('Escape');
    await expect.poll(() => help.count()).toBe(0);
  });

  it('T changes the theme, which is stored', async () => {
    await fresh();
    await press('T', 'T');
    const theme = () => page.evaluate(() => document.documentElement.dataset['theme']);
    expect(await theme()).toBe('dark');
    await page.reload();
    expect(await theme()).toBe('dark');
    await press('T');
    expect(await theme()).toBeUndefined();
  });

  it('g and a letter go to the pages', async () => {
    await fresh();
    for (const [key, path, title] of [
      ['i', '/intercept', 'Intercept'], ['c', '/compose', 'Compose'], ['v', '/conversations', 'Conversations'], ['a', '/approvals', 'Approvals'], ['r', '/rules', 'Rules'],
      ['p', '/privacy', 'Privacy'], ['k', '/keys', 'Keys & budgets'], ['m', '/media', 'Media'], ['o', '/overview', 'Overview'], ['s', '/settings', 'Settings'], ['t', '/', 'Traffic'],
    ] as const) {
      await press('g', key);
      await page.getByRole('heading', { name: title, level: 1 }).waitFor({ state: 'attached' });
      expect(new URL(page.url()).pathname).toBe(path);
    }
    // Keys of the browser stay with it.
    await press('Alt+2');
    expect(new URL(page.url()).pathname).toBe('/');
  });

  it('are ordinary letters in text inputs', async () => {
    await fresh();
    await press('/');
    await page.keyboard.type('dxp?');
    expect(await page.getByRole('combobox', { name: 'Filter' }).inputValue()).toBe('dxp?');
    expect(await page.getByRole('dialog').count()).toBe(0);
    await press('Escape');
  });
});

describe('the filter', () => {
  const field = () => page.getByRole('combobox', { name: 'Filter' });

  it('completes, applies, and updates the URL', async () => {
    await fresh();
    await press('/');
    await page.keyboard.type('stat');
    await page.getByRole('option', { name: /^status:/ }).waitFor();
    await press('Tab');
    await page.keyboard.type('404');
    await press('Enter');
    await expect.poll(() => rows().count()).toBe(1);
    expect(await rows().textContent()).toContain('/missing');
    expect(new URL(page.url()).searchParams.get('q')).toBe('status:404');
    await page.goBack();
    await expect.poll(() => rows().count()).toBeGreaterThan(10);
    expect(await field().inputValue()).toBe('');
  });

  it('shows errors with their position', async () => {
    await fresh();
    await press('/');
    await page.keyboard.type('status:200 stats:4');
    const trouble = page.locator('.query-error');
    await expect.poll(() => trouble.textContent()).toContain('column 12');
    expect(await trouble.locator('pre').textContent()).toBe(`status:200 stats:4\n${' '.repeat(11)}^^^^^`);
    await press('Enter');
    expect(await field().getAttribute('aria-invalid')).toBe('true');
    expect(new URL(page.url()).searchParams.get('q')).toBeNull();
    await press('Escape');
  });

  it('takes terms from every cell, included or excluded', async () => {
    await fresh('path:/missing');
    const cells = page.locator('.drawn .line').first().locator('[data-term]');
    const terms = await cells.evaluateAll((list) => list.map((c) => (c as HTMLElement).dataset['term'] ?? ''));
    expect(terms.length).toBeGreaterThanOrEqual(7);
    for (const term of terms) {
      const { ok } = await world.api<{ ok: boolean }>(`/query/check?${new URLSearchParams({ q: term }).toString()}`);
      expect(ok, term).toBe(true);
      const found = await world.api<{ count: number }>(`/flows/count?${new URLSearchParams({ q: '', query: `${term} path:/missing` }).toString().replace('q=&', '')}`);
      expect(found.count, term).toBe(1);
    }
    await fresh();
    await page.locator('.drawn .line .status.s5').first().hover();
    await page.locator('.cell-filter button').first().click();
    await expect.poll(() => rows().count()).toBe(1);
    expect(new URL(page.url()).searchParams.get('q')).toBe('status:500');
    await page.getByRole('button', { name: 'Remove status:500' }).click();
    await expect.poll(() => rows().count()).toBeGreaterThan(10);
    const all = await rows().count();
    await page.locator('.drawn .line .status.s4').first().hover();
    await page.locator('.cell-filter button').last().click();
    await expect.poll(() => rows().count()).toBe(all - 1);
  });

  it('has the words of the cells and chips, and several values with commas', async () => {
    for (const [query, least] of [['type:ws', 1], ['type:sse', 1], ['status:404,500', 2], ['status:ERR', 1], ['method:GET,POST', 10], ['time:today', 10], ['host:27', 0], ['host:=127.0.0.1', 10]] as const) {
      const { count } = await world.api<{ count: number }>(`/flows/count?${new URLSearchParams({ query }).toString()}`);
      expect(count, query).toBeGreaterThanOrEqual(least);
    }
    await fresh();
    for (const chip of await page.getByRole('group', { name: 'Filters' }).locator('button.chip').all()) {
      const term = (await chip.getAttribute('title')) ?? '';
      const { ok } = await world.api<{ ok: boolean }>(`/query/check?${new URLSearchParams({ q: term }).toString()}`);
      expect(ok, term).toBe(true);
    }
    await page.getByRole('button', { name: 'WebSocket', exact: true }).click();
    await expect.poll(() => rows().count()).toBe(1);
    expect(await rows().textContent()).toContain('/socket');
  });

  it('offers what was probably meant when nothing matches', async () => {
    for (const [wrong, meant] of [['status>=500', 'status:>=500'], ['path:/missing or path:/broken', 'path:/missing OR path:/broken'], ['host=127.0.0.1', 'host:127.0.0.1']] as const) {
      await page.goto(`${host()}/?${new URLSearchParams({ q: wrong }).toString()}`);
      await page.getByRole('button', { name: meant, exact: true }).click();
      await rows().first().waitFor();
      expect(new URL(page.url()).searchParams.get('q')).toBe(meant);
    }
  });

  it('takes the model and agent of a call', async () => {
    const body = JSON.stringify({ model: 'claude-sonnet-4-5', messages: [{ role: 'user', content: 'hello' }] });
    const headers = { 'content-type': 'application/json', 'anthropic-version': '2023-06-01', 'user-agent': 'claude-cli/2.0.1 (external, cli)' };
    await world.send('/v1/messages', { method: 'POST', headers, body });
    await fresh('path:/v1/messages');
    await page.locator('.drawn .model').first().hover({ timeout: 15_000 });
    await page.getByRole('button', { name: '+', exact: true }).click();
    await expect.poll(() => new URL(page.url()).searchParams.get('q')).toBe('path:/v1/messages model:claude-sonnet-4-5');
    await expect.poll(() => rows().count()).toBe(1);
    await rows().first().click();
    await page.getByRole('tab', { name: 'Overview' }).click();
    const agent = panel().getByRole('row', { name: /^Agent/ });
    await agent.hover();
    await agent.getByRole('button', { name: 'Filter out agent:claude-code' }).click();
    await page.getByText('No matching flows').waitFor();
  });

  it('suggests what was probably meant where nothing matches', async () => {
    for (const [written, meant] of [
      ['status>=200', 'status:>=200'],
      ['host=127.0.0.1', 'host:127.0.0.1'],
      ['path:/orders or path:/nowhere', 'path:/orders OR path:/nowhere'],
    ] as const) {
      await page.goto(`${host()}/?${new URLSearchParams({ q: written })}`);
      await page.getByRole('button', { name: meant, exact: true }).click();
      await expect.poll(() => new URL(page.url()).searchParams.get('q')).toBe(meant);
      await expect.poll(() => rows().count()).toBeGreaterThan(0);
    }
  });

  it('f and F filter by host, chips by common terms', async () => {
    await fresh('path:/orders');
    await press('j', 'f');
    await expect.poll(() => new URL(page.url()).searchParams.get('q')).toBe('path:/orders host:127.0.0.1');
    await expect.poll(() => rows().count()).toBe(1);
    await press('j', 'F');
    await expect.poll(() => page.getByText('No matching flows').count()).toBe(1);
    await fresh();
    await page.getByRole('button', { name: 'WebSocket', exact: true }).click();
    await expect.poll(() => rows().count()).toBe(1);
  });
});

describe('a flow', () => {
  it('shows its timings, sides and errors', async () => {
    await show('path:/cut');
    const text = await panel().textContent();
    for (const words of ['upstream_closed', 'wait (TTFB)', 'Client side', 'Upstream side', world.origin]) expect(text).toContain(words);
  });

  it('shows JSON as a tree that keeps large numbers', async () => {
    await show('path:/orders', 'response');
    await expect.poll(() => panel().textContent()).toContain('90071992547409931');
    const city = panel().getByText('Genève');
    expect(await city.count()).toBe(1);
    await panel().getByRole('button', { name: 'Close customer' }).click();
    expect(await city.count()).toBe(0);
  });

  it('decodes the content coding, and downloads the raw bytes', async () => {
    await show('path:/gzip', 'response');
    await expect.poll(() => panel().textContent()).toContain('"packed"');
    const [file] = await Promise.all([page.waitForEvent('download'), panel().getByRole('link', { name: 'Raw' }).click()]);
    expect(file.suggestedFilename()).toMatch(/response\.bin$/);
    await show('path:=/br', 'response');
    await expect.poll(() => panel().textContent()).toContain('<title>packed</title>');
  });

  it('shows more of a long text when asked', async () => {
    await show('path:/text', 'response');
    const text = page.getByTestId('body-text');
    await expect.poll(async () => ((await text.textContent()) ?? '').length).toBe(65_536);
    await panel().getByRole('button', { name: 'Show more' }).click();
    await expect.poll(async () => ((await text.textContent()) ?? '').length).toBe(262_144);
    await panel().getByRole('button', { name: 'Show more' }).click();
    await expect.poll(async () => ((await text.textContent()) ?? '').length).toBe(300_000);
    expect(await panel().getByRole('button', { name: 'Show more' }).count()).toBe(0);
  });

  it('shows bytes in hex', async () => {
    await show('path:/binary', 'response');
    await panel().getByRole('button', { name: 'Hex' }).click();
    await expect.poll(() => page.getByTestId('body-text').textContent()).toContain('00000010  10 11 12');
  });

  it('renders images, and only images', async () => {
    await show('path:/picture.png', 'response');
    const picture = panel().getByRole('img');
    await expect.poll(() => picture.evaluate((i: HTMLImageElement) => i.naturalWidth)).toBe(2);
    await show('path:/false.png', 'response');
    await expect.poll(() => panel().textContent()).toContain('Not a supported image');
    expect(await panel().getByRole('img').count()).toBe(0);
    await panel().getByRole('button', { name: 'Text' }).click();
    await expect.poll(() => page.getByTestId('body-text').textContent()).toBe(HOSTILE);
    await show('path:/drawing.svg', 'response');
    await expect.poll(() => panel().textContent()).toContain('window.pwned=1');
    expect(await panel().getByRole('img').count()).toBe(0);
  });

  it('never runs displayed content', async () => {
    for (const [query, tab] of [['path:=/hostile', 'request'], ['path:=/hostile', 'response'], ['path:/hostile.json', 'response'], ['is:websocket', 'messages'], ['path:=/hostile', 'overview']] as const) {
      await show(query, tab);
      await expect.poll(() => panel().textContent(), { message: query + tab }).toContain('window.pwned');
      expect(await panel().locator('script, img[src=x], svg[onload]').count()).toBe(0);
    }
    await page.waitForTimeout(200);
    expect(await page.evaluate(() => (window as unknown as { pwned?: number }).pwned)).toBeUndefined();
    await page.goto(`${host()}/?q=${encodeURIComponent(HOSTILE)}`);
    await page.waitForTimeout(300);
    expect(await page.evaluate(() => (window as unknown as { pwned?: number }).pwned)).toBeUndefined();
  });

  it('shows messages of both directions, live', async () => {
    await show('is:websocket', 'messages');
    for (const words of ['hello from the origin', 'hello from the client', '1000 bye']) await expect.poll(() => panel().textContent()).toContain(words);
    await panel().getByRole('searchbox').fill('client');
    await expect.poll(() => panel().locator('li').count()).toBe(1);
    const stream = world.send('/events?live');
    await fresh('query:live');
    await rows().first().click();
    await page.getByRole('tab', { name: /Messages/ }).click();
    await expect.poll(() => panel().locator('li').count()).toBeGreaterThan(0);
    const early = await panel().locator('li').count();
    expect(early).toBeLessThan(12);
    await stream;
    await expect.poll(() => panel().locator('li').count()).toBe(12);
  });
});

describe('actions', () => {
  const clipboard = () => page.evaluate(() => navigator.clipboard.readText());

  it('y and the menu copy a flow', async () => {
    await show('path:/echo');
    await press('y');
    await expect.poll(clipboard).toContain('curl ');
    expect(await clipboard()).toContain('/echo?x=1');
    for (const [label, words] of [['JavaScript, fetch', 'fetch('], ['Python, requests', 'requests'], ['HAR', '"entries"']] as const) {
      await page.getByRole('button', { name: /Copy as/ }).click();
      await page.getByRole('menuitem', { name: label }).click();
      await expect.poll(clipboard, { message: label }).toContain(words);
    }
  });

  it('r replays, and the new flow links to its parent', async () => {
    await fresh('path:/orders');
    await press('j', 'r');
    await page.getByRole('button', { name: 'Show', exact: true }).click();
    await expect.poll(() => panel().textContent()).toContain('Replay of');
    await expect.poll(() => rows().count()).toBe(2);
    await expect.poll(() => page.locator('.drawn .badge', { hasText: '↻' }).count()).toBe(1);
  });

  it('e edits the request and sends it', async () => {
    await fresh('path:/echo');
    await press('j', 'e');
    const dialog = page.getByRole('dialog', { name: 'Edit and resend' });
    await dialog.getByLabel('Method').fill('PUT');
    await dialog.getByLabel('URL').fill(`http://${world.origin}/echo?edited`);
    const fields = dialog.getByLabel('Header fields', { exact: true });
    await fields.fill((await fields.inputValue()).replace(/x-test: one/i, 'x-test: two'));
    await dialog.getByLabel('Body', { exact: true }).fill('{"edited":true}');
    await press('Control+Enter');
    await expect.poll(() => panel().textContent()).toContain('edited');
    await press('3');
    await expect.poll(() => panel().textContent()).toContain('"edited"');
    const text = await panel().textContent();
    expect(text).toContain('two');
    const sent = await world.api<{ flows: { method: string; path: string }[] }>('/flows?query=query:edited');
    expect(sent.flows).toMatchObject([{ method: 'PUT', path: '/echo?edited' }]);
  });

  it('a request that cannot be sent reports an error, and the edit is kept', async () => {
    await fresh('query:x=1');
    await press('j', 'e');
    const dialog = page.getByRole('dialog', { name: 'Edit and resend' });
    await dialog.getByLabel('Method').fill('NO METHOD');
    await dialog.getByRole('button', { name: 'Send' }).click();
    await expect.poll(() => dialog.getByRole('alert').textContent()).toContain('not a method');
    expect(await dialog.getByLabel('Method').inputValue()).toBe('NO METHOD');
    await press('Escape');
    await dialog.getByRole('button', { name: 'Discard' }).click();
    await expect.poll(() => dialog.count()).toBe(0);
  });

  it('x selects and c compares', async () => {
    await fresh('path:/echo');
    await press('j', 'x', 'j', 'x');
    await expect.poll(() => page.locator('footer').textContent()).toContain('2 selected');
    await press('c');
    const dialog = page.getByRole('dialog', { name: 'Compare' });
    for (const words of ['method', 'POST', 'PUT', 'edited']) await expect.poll(() => dialog.textContent()).toContain(words);
    await press('Escape');
    await press('x', 'c');
    await expect.poll(() => page.getByRole('status').first().textContent()).not.toContain('Select two');
    await press('Escape');
  });

  it('t adds a tag and a comment', async () => {
    await fresh('path:/missing');
    await press('j', 't');
    const tag = page.getByLabel('New tag');
    await expect.poll(() => tag.evaluate((n) => n === document.activeElement)).toBe(true);
    const opened = (await selected().getAttribute('data-id'))!;
    let isRefused = true;
    await page.route('**/api/v1/flows/*', async (route) => {
      if (route.request().method() !== 'PATCH') return route.continue();
      if (isRefused) return route.fulfill({ status: 409, json: { error: { kind: 'x', message: 'not now' } } });
      await world.api(`/flows/${opened}`, { method: 'PATCH', headers: { 'content-type': 'application/json' }, body: '{"add_tags":["meanwhile"]}' });
      return route.continue();
    });
    // What is refused stays in the field.
    await page.keyboard.type('look here');
    await press('Enter');
    await page.getByText('not now').waitFor();
    expect(await tag.inputValue()).toBe('look here');
    // Tags that came meanwhile, of which the page does not know, stay, too.
    isRefused = false;
    await tag.press('Enter');
    await page.getByRole('button', { name: 'Remove tag meanwhile' }).waitFor();
    await page.unrouteAll({ behavior: 'wait' });
    await page.getByRole('button', { name: 'Remove tag meanwhile' }).click();
    expect(await tag.inputValue()).toBe('');
    await expect.poll(() => page.locator('.drawn .badge.tag').textContent()).toBe('look here');
    await page.getByLabel('Comment').fill('why is it missing?');
    // An update of the flow does not overwrite a comment being edited.
    const id = await selected().getAttribute('data-id');
    await world.api(`/flows/${id}`, { method: 'PATCH', headers: { 'content-type': 'application/json' }, body: '{"add_tags":["from elsewhere"]}' });
    await page.getByRole('button', { name: 'Remove tag from elsewhere' }).click();
    await expect.poll(() => page.getByRole('button', { name: 'Remove tag from elsewhere' }).count()).toBe(0);
    expect(await page.getByLabel('Comment').inputValue()).toBe('why is it missing?');
    await page.getByLabel('Comment').focus();
    await press('Control+Enter');
    await expect.poll(async () => (await world.api<{ flows: unknown[] }>('/flows?query=comment:missing')).flows.length).toBe(1);
    await page.getByRole('button', { name: 'Remove tag look here' }).click();
    await expect.poll(() => page.locator('.drawn .badge.tag').count()).toBe(0);
  });

  it('d deletes after a while, in which it can be undone by mouse and keyboard', async () => {
    await world.send('/doomed/1');
    await world.send('/doomed/2');
    await fresh('path:/doomed');
    await expect.poll(() => rows().count()).toBe(2);
    const recorded = async () => (await world.api<{ count: number }>('/flows/count?query=path:/doomed')).count;
    const dismiss = () => page.getByRole('button', { name: 'Dismiss' }).last().click();
    await press('j', 'd');
    await expect.poll(() => rows().count()).toBe(1);
    await page.getByRole('button', { name: 'Undo', exact: true }).click();
    await expect.poll(() => rows().count()).toBe(2);
    await press('j', 'Delete', 'u');
    await expect.poll(() => rows().count()).toBe(2);
    expect([await page.getByText('Flow deleted').count(), await recorded()]).toEqual([0, 2]);
    // What is deleted stays hidden when the list is loaded again, and is deleted with the end of its notice.
    await press('j', 'd');
    await expect.poll(() => rows().count()).toBe(1);
    await page.getByLabel('Filter', { exact: true }).fill('path:/doomed/');
    await page.keyboard.press('Enter');
    await expect.poll(() => rows().count()).toBe(1);
    expect(await recorded()).toBe(2);
    await dismiss();
    await expect.poll(recorded).toBe(1);
    await press('d');
    // So it is when the page is left.
    await page.goto('about:blank');
    await expect.poll(recorded).toBe(0);
  });

  it('matching or selected flows can be exported', async () => {
    await fresh('path:/orders');
    await page.getByRole('button', { name: /Export/ }).click();
    const [all] = await Promise.all([page.waitForEvent('download'), page.getByRole('menuitem', { name: /^HAR/ }).click()]);
    expect(all.suggestedFilename()).toBe('flows.har');
    await press('j', 'x');
    await page.getByRole('button', { name: /Export/ }).click();
    const [chosen] = await Promise.all([page.waitForEvent('download'), page.getByRole('menuitem', { name: /Session file/ }).click()]);
    expect(chosen.suggestedFilename()).toBe('flows.jsonl');
  });
});

describe('live', () => {
  it('shows new flows and their responses', async () => {
    await fresh();
    const before = Number(await page.getByRole('grid').getAttribute('aria-rowcount'));
    const answer = world.send('/slow?one');
    const first = page.locator('.drawn .line').first();
    await expect.poll(() => first.textContent()).toContain('/slow?one');
    await answer;
    await expect.poll(() => first.locator('.status').textContent()).toContain('200');
    expect(Number(await page.getByRole('grid').getAttribute('aria-rowcount'))).toBe(before + 1);
  });

  it('p pauses: new flows are counted, and shown on resume', async () => {
    await fresh();
    await press('p');
    await page.getByText('Paused').waitFor();
    for (const n of [1, 2, 3]) await world.send(`/while-paused/${n}`);
    const fresh3 = page.getByRole('button', { name: '3 new' });
    await fresh3.waitFor();
    expect(await rows().first().textContent()).not.toContain('while-paused');
    await press('p');
    await expect.poll(() => rows().first().textContent()).toContain('/while-paused/3');
    expect(await fresh3.count()).toBe(0);
  });

  it('a filter applies to live flows', async () => {
    await fresh('path:/orders');
    const before = await rows().count();
    await world.send('/not-this');
    await world.send('/orders?late');
    await expect.poll(() => rows().count()).toBe(before + 1);
    expect(await rows().first().textContent()).toContain('/orders?late');
  });
});

describe('many flows', () => {
  const N = 3000;
  const scrollTo = (place: number) => page.locator('.scroller').evaluate((e, top) => {
    e.scrollTo(0, top);
    // Waits for the scroll event and the rendering after it.
    return new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
  }, place);

  it('scroll without gaps, and stay in place while more arrive', async () => {
    let next = 0;
    await Promise.all(Array.from({ length: 16 }, async () => {
      while (next < N) await world.send(`/many/${(next += 1)}`);
    }));
    await world.recorded(N, 'path:/many');
    await fresh('path:/many');
    await expect.poll(() => page.getByRole('grid').getAttribute('aria-rowcount')).toBe(String(N + 1));
    expect(await page.locator('.drawn .line').count()).toBeLessThan(80);
    const seen = new Set<string>();
    for (let n = 0; n < N; n += 20) {
      await scrollTo(n * 26);
      await expect.poll(() => page.locator('.pending').count(), { message: `at row ${n}` }).toBe(0);
      for (const id of await rows().evaluateAll((list) => list.map((r) => (r as HTMLElement).dataset['id'] ?? ''))) seen.add(id);
    }
    expect(seen.size).toBe(N);

    await scrollTo(40_000);
    await expect.poll(() => page.locator('.pending').count()).toBe(0);
    const top = () => page.evaluate(() => {
      const frame = document.querySelector('.scroller')!.getBoundingClientRect();
      const row = [...document.querySelectorAll<HTMLElement>('.drawn .line')].find((r) => r.getBoundingClientRect().bottom > frame.top + 1);
      return `${row?.dataset['id']} ${Math.round(row!.getBoundingClientRect().top - frame.top)}`;
    });
    await expect.poll(async () => Number((await top()).split(' ')[1])).toBeGreaterThan(-26);
    const before = await top();
    for (const n of [1, 2, 3]) await world.send(`/many/later/${n}`);
    await page.getByRole('button', { name: '3 new' }).waitFor();
    expect(await top()).toBe(before);
    await page.getByRole('button', { name: '3 new' }).click();
    await expect.poll(() => rows().first().textContent()).toContain('/many/later/3');
  }, 120_000);

  it('G jumps to the end and g to the start', async () => {
    await fresh('path:/many');
    await press('G');
    await expect.poll(() => selected().getAttribute('aria-rowindex')).toBe(String(N + 4));
    expect(await page.locator('.pending').count()).toBe(0);
    await press('k', 'k');
    await expect.poll(() => selected().getAttribute('aria-rowindex')).toBe(String(N + 2));
    await press('g', 'g');
    await expect.poll(() => selected().getAttribute('aria-rowindex')).toBe('2');
  });

  it('do not freeze the page at a high rate', async () => {
    await fresh();
    const longest = page.evaluate(() => new Promise<number>((done) => {
      let most = 0;
      let last = performance.now();
      const end = last + 3000;
      const tick = () => {
        const now = performance.now();
        most = Math.max(most, now - last);
        last = now;
        if (now < end) setTimeout(tick, 5);
        else done(most);
      };
      tick();
    }));
    let going = true;
    const sent = Promise.all(Array.from({ length: 16 }, async () => {
      while (going) await world.send('/fast');
    }));
    // A frozen page blocks for seconds; the bound leaves room for a busy machine.
    expect(await longest).toBeLessThan(1000);
    going = false;
    await sent;
  });
});
