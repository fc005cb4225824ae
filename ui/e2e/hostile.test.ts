// Hostile bodies, heads and names, and the access control of the admin endpoints.
import { readFileSync } from 'node:fs';
import { request } from 'node:http';
import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { HOSTILE, TRAPS } from './origin';
import { World } from './world';

let world: World;
let page: Page;
const host = () => `http://${world.admin}`;

beforeAll(async () => {
  world = await World.start();
  for (const name of Object.keys(TRAPS)) await world.send(`/trap/${name}`, { headers: { 'x-evil': HOSTILE, 'user-agent': '\u00ff' + HOSTILE } });
  await world.send(`/${'long/'.repeat(1500)}`);
  await world.send('/%E2%80%AE/bidi?q=%3Cscript%3E\u00e9'.replace('\u00e9', ''));
  await world.recorded(Object.keys(TRAPS).length + 2);
  page = await world.page('/');
});

afterAll(async () => {
  await world?.stop();
});

afterEach(async () => {
  const ran = await page.evaluate(() => ({ pwned: (window as unknown as { pwned?: number }).pwned, polluted: ({} as { pwned?: number }).pwned }));
  expect(ran, 'something ran').toEqual({});
  expect(new URL(page.url()).host, 'the page was led away').toBe(world.admin);
  expect(await page.locator('main :is(script, iframe, form[action], base, meta, img[src="x"], svg[onload], [onerror], [onfocus])').count()).toBe(0);
  expect(world.complaints, 'the browser complained').toEqual([]);
  expect(world.strays, 'the page asked others').toEqual([]);
});

/** The page reacts to a key in time, so it is not blocked. */
async function alive() {
  const from = Date.now();
  await page.keyboard.press('?');
  await page.getByRole('dialog', { name: 'Help' }).waitFor();
  await page.keyboard.press('Escape');
  expect(Date.now() - from).toBeLessThan(5000);
}

describe('a hostile body does nothing in any view', () => {
  it.each(Object.keys(TRAPS))('%s', async (name) => {
    await page.goto(`${host()}/?q=${encodeURIComponent(`path:=/trap/${name}`)}`);
    await page.locator('.drawn .line[data-id]').first().click();
    await page.getByRole('tabpanel').waitFor();
    for (const tab of await page.getByRole('tab').all()) {
      await tab.click();
      await page.waitForTimeout(100);
      for (const view of await page.getByRole('group', { name: /View of the body|Form/ }).getByRole('button').all()) {
        await view.click();
        await page.waitForTimeout(150);
      }
    }
    await alive();
  }, 60_000);
});

it('long paths and bidirectional marks stay in their cells', async () => {
  await page.goto(`${host()}/`);
  await page.locator('.drawn .line[data-id]').first().waitFor();
  const cells = await page.locator('.drawn .line[data-id] > span').evaluateAll((list) => list.map((c) => ({
    bidi: getComputedStyle(c).unicodeBidi, out: c.getBoundingClientRect().right - c.closest('.line')!.getBoundingClientRect().right,
  })));
  expect(cells.length).toBeGreaterThan(50);
  expect([...new Set(cells.map((c) => c.bidi))]).toEqual(['isolate']);
  expect(Math.max(...cells.map((c) => c.out))).toBeLessThanOrEqual(0);
  await page.goto(`${host()}/?q=path:/long`);
  await page.locator('.drawn .line[data-id]').first().click();
  await page.getByRole('tabpanel').waitFor();
  expect(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)).toBeLessThanOrEqual(0);
});

it('user-given names are displayed literally', async () => {
  const { flows } = await world.api<{ flows: { id: string }[] }>('/flows?limit=1');
  const marks = { add_tags: [HOSTILE.slice(0, 90), 'found:<b>x</b>', 'redacted', 'tls', 'rule-matched', 'rule', '!'], comment: HOSTILE };
  await world.api(`/flows/${flows[0]!.id}`, { method: 'PATCH', headers: { 'content-type': 'application/json' }, body: JSON.stringify(marks) });
  await page.evaluate((text) => localStorage.setItem('views', JSON.stringify([{ name: text, query: text }, 7, { name: 1 }])), HOSTILE);
  await page.goto(`${host()}/?id=${flows[0]!.id}`);
  await page.getByRole('tabpanel').waitFor();
  await page.getByRole('button', { name: /^Views/ }).click();
  await page.getByRole('menuitem', { name: '<script>' }).waitFor();
  await page.keyboard.press('Escape');
  await page.keyboard.press('Control+k');
  await page.getByRole('option', { name: /View: <script>/ }).waitFor();
  await page.keyboard.press('Escape');
  await page.goto(`${host()}/privacy`);
  await page.getByRole('link', { name: '<b>x</b>' }).first().waitFor();
  await page.evaluate(() => localStorage.setItem('views', '{broken'));
  await page.goto(`${host()}/`);
  await page.locator('.drawn .line[data-id]').first().waitFor();
  await page.evaluate(() => localStorage.removeItem('views'));
});

it('hostile conversations run nothing, neither in the page nor in the export', async () => {
  const said = `# ${HOSTILE} [click](javascript:window.pwned=1) ![x](http://evil.test/x.png) \u202e\u0000\u001b[31m`;
  const messages = [
    { role: 'user', content: [{ type: 'text', text: said }, { type: 'image', source: { type: 'url', url: 'http://evil.test/pixel.png' } }] },
    { role: 'assistant', content: [
      { type: 'thinking', thinking: said, signature: 's' },
      { type: 'tool_use', id: HOSTILE, name: HOSTILE, input: { __proto__: { pwned: 1 }, [HOSTILE]: said, command: said } },
    ] },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: HOSTILE, content: said, is_error: true }] },
  ];
  const body = JSON.stringify({ model: HOSTILE, max_tokens: 9, system: said, messages, tools: [{ name: HOSTILE }], metadata: { user_id: `u_session_${HOSTILE}` } });
  const headers = { 'content-type': 'application/json', 'anthropic-version': '2023-06-01', 'user-agent': `${HOSTILE}/1` };
  expect(await world.send('/v1/messages', { method: 'POST', headers, body })).toBe(200);
  await page.goto(`${host()}/conversations`);
  await page.locator('.entry').first().waitFor();
  await page.keyboard.press('j');
  await page.getByRole('article').waitFor();
  await page.keyboard.press('e');
  await expect.poll(() => page.getByRole('article').textContent()).toContain('javascript:window.pwned=1');
  await page.keyboard.press('t');
  await page.getByRole('treeitem').first().waitFor();
  await page.keyboard.press('t');
  await page.getByRole('tab', { name: 'Totals' }).click();
  await page.getByRole('rowheader').first().waitFor();
  await page.getByRole('tab', { name: 'List' }).click();
  await page.getByRole('article').waitFor();
  expect(await page.locator('article a[href]').evaluateAll((list) => list.map((a) => (a as HTMLAnchorElement).protocol))).not.toContain('javascript:');

  const [file] = await Promise.all([page.waitForEvent('download'), page.getByLabel('Save as').selectOption('html')]);
  const document = readFileSync(await file.path(), 'utf8');
  const reader = await world.page('/settings');
  const asked: string[] = [];
  reader.on('request', (r) => asked.push(r.url()));
  await reader.route('**/saved.html', (route) => route.fulfill({ contentType: 'text/html', body: document }));
  await reader.goto(`${host()}/saved.html`);
  await expect.poll(() => reader.locator('body').textContent()).toContain('javascript:window.pwned=1');
  expect(await reader.evaluate(() => (window as unknown as { pwned?: number }).pwned)).toBeUndefined();
  expect(asked.filter((a) => new URL(a).host !== world.admin)).toEqual([]);
  await reader.context().close();
});

it('a hostile rule file runs nothing', async () => {
  await page.goto(`${host()}/rules`);
  const editor = page.getByRole('textbox', { name: 'Rules' });
  await editor.waitFor();
  await page.waitForTimeout(500);
  await editor.click();
  await page.keyboard.press('Control+a');
  await page.keyboard.insertText(`rules:\n  - name: ${JSON.stringify(HOSTILE)}\n    when: host:never.test\n    then: block\n`);
  await page.getByRole('button', { name: 'Save and apply' }).click();
  await expect.poll(() => page.getByRole('table').first().textContent()).toContain('<script>');
  await page.keyboard.insertText('\u202e{{{{"'.repeat(200));
  await expect.poll(() => page.getByRole('main').textContent()).toContain('1 error');
  await page.getByRole('heading', { name: 'Active rules' }).click();
  await alive();
  // The browser wraps replaced text in inline styles, which the content security policy blocks and the editor removes.
  world.complaints.splice(0, Infinity, ...world.complaints.filter((c) => !c.startsWith('Applying inline style')));
});

/** A raw request, without browser restrictions. */
function plain(method: string, path: string, headers: Record<string, string>): Promise<{ status: number; cookie: string }> {
  const [name, port] = world.admin.split(':');
  return new Promise((done, fail) => {
    const asked = request({ host: name, port, method, path, headers: { host: world.admin, ...headers } }, (answer) => {
      answer.resume();
      done({ status: answer.statusCode ?? 0, cookie: String(answer.headers['set-cookie'] ?? '') });
    });
    asked.on('upgrade', (answer, socket) => {
      socket.destroy();
      done({ status: answer.statusCode ?? 0, cookie: '' });
    });
    asked.on('error', fail).end();
  });
}

describe('the admin endpoints', () => {
  it('the cookie is SameSite and HttpOnly', async () => {
    const { cookie } = await plain('GET', `/?token=${world.token}`, {});
    for (const part of ['HttpOnly', 'SameSite=Strict', 'Path=/']) expect(cookie).toContain(part);
    expect(cookie).not.toContain(world.token);
    expect(await page.evaluate(() => document.cookie)).toBe('');
  });

  it.each([
    ['a change without an Origin', 'POST', '/api/v1/flows/prune', {}, 403],
    ['a change from another origin', 'POST', '/api/v1/flows/prune', { origin: 'http://evil.test' }, 403],
    ['a change from another port of this machine', 'DELETE', '/api/v1/passthrough', { origin: 'http://127.0.0.1:1' }, 403],
    ['a page of a rebound name', 'GET', '/api/v1/flows', { host: 'evil.test' }, 421],
    ['reading from another origin', 'GET', '/api/v1/flows', { origin: 'null' }, 403],
    ['our own', 'GET', '/api/v1/flows', {}, 200],
  ] as const)('%s', async (_, method, path, headers, status) => {
    const { cookie } = await plain('GET', `/?token=${world.token}`, {});
    expect((await plain(method, path, { cookie: cookie.split(';')[0]!, ...headers })).status).toBe(status);
  });

  it.each([['http://evil.test', 403], ['', 101]] as const)('the event socket for a page of %j', async (origin, status) => {
    const { cookie } = await plain('GET', `/?token=${world.token}`, {});
    const upgrade = { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': '13', 'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==' };
    const answer = await plain('GET', '/api/v1/events', { cookie: cookie.split(';')[0]!, origin: origin || host(), ...upgrade });
    expect(answer.status).toBe(status);
  });

  it('recorded bytes are served with inert content types', async () => {
    const { flows } = await world.api<{ flows: { id: string }[] }>(`/flows?query=${encodeURIComponent('path:=/trap/html')}`);
    for (const view of ['raw', 'decoded', 'text', 'pretty', 'hex']) {
      const response = await fetch(`${host()}/api/v1/flows/${flows[0]!.id}/response/body?view=${view}`, { headers: { authorization: `Bearer ${world.token}` } });
      expect(response.headers.get('content-type'), view).toMatch(/^(text\/plain|application\/octet-stream)/);
      expect(response.headers.get('x-content-type-options')).toBe('nosniff');
      expect(response.headers.get('content-security-policy')).toMatch(/sandbox|default-src 'none'/);
    }
  });
});
