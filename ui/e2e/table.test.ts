// The table of flows: menu, rules from flows, columns, order, groups, check boxes, and completion with counts.
import AxeBuilder from 'axe-core';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { World } from './world';

let world: World;
let page: Page;

const RULES = '# kept\nrules:\n  - name: first\n    when: path:/nowhere\n    then: block\n';

beforeAll(async () => {
  world = await World.start({ files: { 'rules.yaml': RULES }, config: () => '[proxy]\nprocesses = true\n' });
  for (const path of ['/orders', '/text', '/missing', '/picture.png', '/orders?again']) await world.send(path);
  await world.send('/echo', { method: 'POST', headers: { 'content-type': 'text/plain' }, body: 'x'.repeat(400) });
  await world.recorded(6);
  page = await world.page('/');
});

afterAll(async () => {
  await world?.stop();
});

beforeEach(async () => {
  await page.evaluate(() => localStorage.clear());
  await page.goto(`http://${world.admin}/`);
  await rows().first().waitFor();
});

afterEach(() => {
  expect(world.complaints, 'the browser complained').toEqual([]);
});

const rows = () => page.locator('.drawn .line[data-id]');
const row = (text: string) => rows().filter({ hasText: text }).first();
const item = (name: string | RegExp) => page.getByRole('menuitem', { name, exact: typeof name === 'string' });
const header = (name: string) => page.getByRole('columnheader', { name });
const query = () => new URL(page.url()).searchParams.get('q');
const file = () => readFileSync(join(world.home, 'rules.yaml'), 'utf8');
const columns = async () => (await page.getByRole('columnheader').allTextContents()).map((t) => t.trim());

async function clean() {
  await page.evaluate(AxeBuilder.source);
  const found = await page.evaluate(async () => {
    const axe = (globalThis as unknown as { axe: { run(): Promise<{ violations: { id: string; nodes: { html: string; failureSummary?: string }[] }[] }> } }).axe;
    return (await axe.run()).violations.map((v) => `${v.id}: ${v.nodes[0]?.html} ${v.nodes[0]?.failureSummary}`);
  });
  expect(found).toEqual([]);
}

describe('the menu of a row', () => {
  it('filters by what the row has, by mouse', async () => {
    await row('/missing').click({ button: 'right' });
    await item('Filter by').click();
    await item('Status 404').click();
    await expect.poll(query).toBe('status:404');
    await expect.poll(() => rows().count()).toBe(1);
  });

  it('filters by the program that sent the request', async () => {
    const { flows: [found] } = await world.api<{ flows: { id: string }[] }>('/flows?query=path:/missing');
    const { flows } = await world.api<{ flows: Record<string, { process?: string }> }>(`/flows/details?flows=${found!.id}`);
    const name = flows[found!.id]?.process ?? '';
    expect(name).not.toBe('');
    await page.waitForTimeout(300);
    await row('/missing').click({ button: 'right' });
    await item('Filter by').click();
    await item(`Program ${name}`).click();
    await expect.poll(query).toContain('process:');
    await expect.poll(() => rows().count()).toBeGreaterThan(3);
    await page.getByRole('button', { name: 'Columns and order' }).click();
    await item('Columns').click();
    await page.getByRole('menuitemcheckbox', { name: 'Program' }).click();
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    await header('Program').getByRole('button').click();
    await page.getByText(/sorted by program/).waitFor();
    await expect.poll(() => rows().first().textContent()).toContain(name);
  });

  it('copies, by keyboard alone, and gives the focus back', async () => {
    await page.keyboard.press('Home');
    await page.keyboard.press('.');
    await item('Open').waitFor();
    for (const key of ['ArrowDown', 'ArrowRight', 'ArrowDown']) await page.keyboard.press(key);
    await page.keyboard.press('Home');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await page.getByText('Copied the URL').waitFor();
    expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(`http://${world.origin}/echo`);
    await page.keyboard.press('j');
    await expect.poll(() => page.locator('.drawn [aria-selected=true]').textContent()).toContain('/orders?again');
  });

  it('closes by Escape, level by level, and by a click elsewhere', async () => {
    await row('/text').click({ button: 'right' });
    await item('Copy').click();
    await page.keyboard.press('Escape');
    await item('Open').waitFor();
    await page.keyboard.press('Escape');
    await expect.poll(() => page.getByRole('menu').count()).toBe(0);
    await row('/text').click({ button: 'right' });
    await page.getByRole('combobox', { name: 'Filter' }).click();
    await expect.poll(() => page.getByRole('menu').count()).toBe(0);
  });

  it('is clean for axe', async () => {
    await row('/text').click({ button: 'right' });
    await item('Open').waitFor();
    await clean();
  });
});

describe('a rule from a flow', () => {
  it('mocks the recorded answer, is in force at once, and is undone', async () => {
    await row('/orders').click({ button: 'right' });
    await item('New rule').click();
    await item('Mock this response…').click();
    const dialog = page.getByRole('dialog');
    const body = dialog.getByLabel('Body');
    await expect.poll(() => body.inputValue()).not.toBe('');
    await body.fill('mocked ${not a variable}');
    await dialog.getByLabel('Status', { exact: true }).fill('418');
    await expect.poll(() => dialog.getByLabel('Preview of the rule').textContent()).toContain('status: 418');
    await clean();
    await dialog.getByRole('button', { name: 'Add rule' }).click();
    await page.getByText('is active').waitFor();
    expect(file()).toContain(RULES);
    const answer = await world.fetch('/orders');
    expect([answer.status, answer.body.toString()]).toEqual([418, 'mocked ${not a variable}']);
    await page.getByRole('button', { name: 'Undo' }).click();
    await page.getByText('Rule removed').waitFor();
    expect(file()).toBe(RULES);
    expect(await world.send('/orders')).toBe(200);
  });

  it('blocks from the pane, holds, and cuts off', async () => {
    await row('/missing').click();
    await page.getByRole('button', { name: 'New rule' }).click();
    await item('Block…').click();
    await page.getByRole('dialog').getByRole('button', { name: 'Add rule' }).click();
    await page.getByText('is active').waitFor();
    expect(await world.send('/missing')).toBe(403);

    await page.getByRole('button', { name: 'New rule' }).click();
    await item('Throttle…').click();
    await page.getByRole('button', { name: 'offline' }).click();
    await page.getByRole('dialog').getByLabel('Path').fill('/orders*');
    await page.getByRole('dialog').getByRole('button', { name: 'Add rule' }).click();
    await expect.poll(() => world.send('/orders')).toBe(0);
    await world.api('/rules/source?file=' + encodeURIComponent(join(world.home, 'rules.yaml')), {
      method: 'PUT', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ text: RULES, base: file() }),
    });
    expect(await world.send('/orders')).toBe(200);
  });

  it('shows the mistake of a field, and adds nothing', async () => {
    await row('/text').click({ button: 'right' });
    await item('New rule').click();
    await item('Throttle…').click();
    await page.getByLabel('Delay').fill('soon');
    const dialog = page.getByRole('dialog');
    await dialog.locator('.bad').first().waitFor();
    expect(await dialog.getByRole('button', { name: 'Add rule' }).isDisabled()).toBe(true);
    expect(file()).toBe(RULES);
  });
});

describe('columns', () => {
  it('are chosen, moved and resized, and stay so', async () => {
    await page.getByRole('button', { name: 'Columns and order' }).click();
    await item('Columns').click();
    await page.getByRole('menuitemcheckbox', { name: 'Protocol' }).click();
    await page.getByRole('menuitemcheckbox', { name: 'Badges' }).click();
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    await header('Protocol').waitFor();
    await header('Host').getByRole('button').focus();
    const before = (await header('Host').boundingBox())!.width;
    await page.keyboard.press('Shift+ArrowRight');
    await expect.poll(async () => (await header('Host').boundingBox())!.width).toBeGreaterThan(before + 10);
    await page.keyboard.press('Alt+ArrowLeft');
    await expect.poll(async () => (await columns()).join()).toMatch(/Method,Host,Status/);
    await page.reload();
    await rows().first().waitFor();
    const now = (await columns()).join();
    expect(now).toMatch(/Method,Host,Status/);
    expect(now).toContain('Protocol');
    expect(now).not.toContain('Badges');
    await page.getByRole('button', { name: 'Columns and order' }).click();
    await item('Reset the table').click();
    await expect.poll(async () => (await columns()).join()).toMatch(/Method,Status,Host,Path/);
  });

  it('are resized by dragging', async () => {
    const box = (await header('Type').boundingBox())!;
    await page.mouse.move(box.x + box.width + 4, box.y + 10);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width + 64, box.y + 10);
    await page.mouse.up();
    await expect.poll(async () => (await header('Type').boundingBox())!.width).toBeGreaterThan(box.width + 50);
  });
});

it('columns are reordered by dragging their headings', async () => {
  await header('Size').dragTo(header('Host'));
  await expect.poll(async () => (await columns()).join()).toMatch(/Status,Size,Host/);
});

describe('order', () => {
  it('is by any column, says what is sorted, and ends', async () => {
    await header('Size').getByRole('button').click();
    await page.getByText(/All \d+ flows, sorted by size/).waitFor();
    expect(await header('Size').getAttribute('aria-sort')).toBe('descending');
    await expect.poll(() => rows().first().textContent()).toContain('/text');
    await page.keyboard.press('Home');
    await expect.poll(() => page.locator('.drawn [aria-selected=true]').textContent()).toContain('/text');
    await world.send('/orders?late');
    // One flow is one, however often it changes.
    await world.send('/events');
    await page.getByRole('button', { name: '2 new', exact: true }).click();
    await expect.poll(() => rows().filter({ hasText: 'late' }).count()).toBe(1);
    await page.getByRole('button', { name: 'Sort by time, without groups' }).click();
    await expect.poll(() => rows().first().textContent()).toContain('/events');
  });

  it('is by groups that collapse', async () => {
    await page.getByRole('button', { name: 'Columns and order' }).click();
    await item('Group by').click();
    await page.getByRole('menuitemradio', { name: 'Host' }).click();
    // One of several choices: the menu closes.
    await expect.poll(() => page.getByRole('menu').count()).toBe(0);
    const heading = page.getByRole('button', { name: /127\.0\.0\.1 .* flows/ });
    await heading.waitFor();
    expect(await rows().count()).toBeGreaterThan(3);
    await page.keyboard.press('Home');
    await expect.poll(() => page.locator('.drawn [aria-selected=true]').count()).toBe(1);
    await heading.click();
    await expect.poll(() => rows().count()).toBe(0);
    await clean();
  });
});

describe('check boxes', () => {
  it('select flows for the actions below the table', async () => {
    await rows().nth(0).getByRole('checkbox').click();
    await rows().nth(2).getByRole('checkbox').click({ modifiers: ['Shift'] });
    const bar = page.getByRole('toolbar', { name: 'Selected flows' });
    await rows().nth(1).getByRole('checkbox').uncheck();
    await expect.poll(() => bar.textContent()).toContain('2 selected');
    await clean();
    await bar.getByRole('button', { name: 'Compare' }).click();
    await page.getByRole('dialog', { name: 'Compare' }).waitFor();
    await page.keyboard.press('Escape');
    const download = page.waitForEvent('download');
    await bar.getByRole('button', { name: 'Download' }).click();
    await item('HAR').click();
    expect((await download).suggestedFilename()).toBe('flows.har');
    await bar.getByRole('button', { name: 'Clear the selection' }).click();
    await expect.poll(() => bar.count()).toBe(0);
    await page.getByRole('checkbox', { name: 'Select the loaded flows' }).click();
    await expect.poll(() => bar.textContent()).toMatch(/[6-9]|1\d/);
  });
});

it('an exported file is imported again, by the file dialog', async () => {
  const har = await (await fetch(`http://${world.admin}/api/v1/export?format=har&query=path:/orders`, { headers: { authorization: `Bearer ${world.token}` } })).text();
  await page.getByLabel('Archives to import').setInputFiles({ name: 'mine.har', mimeType: 'application/json', buffer: Buffer.from(har.replaceAll('/orders', '/imported')) });
  await page.getByText(/flows? (was|were) imported/).waitFor();
});

it('more flows than can be deleted while the page is left are deleted after asking', async () => {
  const request = { method: 'GET', url: 'http://many.test/', httpVersion: 'HTTP/1.1', headers: [], queryString: [], cookies: [], headersSize: -1, bodySize: 0 };
  const response = { status: 200, statusText: 'OK', httpVersion: 'HTTP/1.1', headers: [], cookies: [], content: { size: 0, mimeType: '' }, redirectURL: '', headersSize: -1, bodySize: 0 };
  const entries = Array.from({ length: 501 }, () => ({ startedDateTime: '2026-01-02T03:04:05Z', time: 1, request, response, cache: {}, timings: { send: 0, wait: 1, receive: 0 } }));
  await world.api('/import', { method: 'POST', body: JSON.stringify({ log: { version: '1.2', creator: { name: 'test', version: '1' }, entries } }) });
  await world.recorded(501, 'host:many.test');
  await page.goto(`http://${world.admin}/?q=host:many.test`);
  await header('Size').getByRole('button').click();
  await page.getByText('All 501 flows, sorted by size').waitFor();
  await page.getByRole('checkbox', { name: 'Select the loaded flows' }).click();
  await page.keyboard.press('d');
  const asked = page.getByRole('dialog', { name: 'Delete 501 flows?' });
  await asked.waitFor();
  await page.keyboard.press('Escape');
  expect((await world.api<{ count: number }>('/flows/count?query=host:many.test')).count).toBe(501);
  await page.keyboard.press('d');
  await asked.getByRole('button', { name: 'Delete' }).click();
  await expect.poll(async () => (await world.api<{ count: number }>('/flows/count?query=host:many.test')).count).toBe(0);
  await expect.poll(() => rows().count()).toBe(0);
});

describe('a file', () => {
  const menu = async (button: string, entry: string) => {
    await page.getByRole('button', { name: `${button} ▾` }).click();
    await item(entry).click();
  };
  const there = () => page.getByRole('grid', { name: 'Flows' }).isVisible();

  it('of one flow is downloaded, and an error leaves the page as it is', async () => {
    await row('/text').click();
    const [saved] = await Promise.all([page.waitForEvent('download'), menu('Save as', 'HAR')]);
    expect(saved.suggestedFilename()).toMatch(/\.har$/);
    const id = new URL(page.url()).searchParams.get('id');
    await page.route(`**/flows/${id}/export*`, (route) => route.fulfill({ status: 404, json: { error: { kind: 'unknown_flow', message: 'this flow was deleted' } } }));
    await menu('Save as', 'HAR');
    await page.getByText('this flow was deleted').waitFor();
    expect(await there()).toBe(true);
    await page.unroute(`**/flows/${id}/export*`);
  });

  it('of all matching flows is downloaded, and an error leaves the page as it is', async () => {
    const [saved] = await Promise.all([page.waitForEvent('download'), menu('Export', 'HAR, all matching')]);
    expect(saved.suggestedFilename()).toBe('flows.har');
    expect(JSON.parse(readFileSync(await saved.path(), 'utf8')).log.entries.length).toBeGreaterThan(4);
    await page.route('**/export?*', (route) => route.fulfill({ status: 503, json: { error: { kind: 'busy', message: 'too many exports', remedy: 'try again' } } }));
    await menu('Export', 'HAR, all matching');
    await page.getByText('too many exports: try again').waitFor();
    expect(await there()).toBe(true);
    await page.unroute('**/export?*');
  });
});

it('a mock keeps the header fields of the recorded response', async () => {
  await world.send('/moved');
  await row('/moved').click({ button: 'right' });
  await item('New rule').click();
  await item('Mock this response…').click();
  const dialog = page.getByRole('dialog');
  await expect.poll(() => dialog.getByLabel('Header fields').inputValue()).toBe('location: /orders');
  await dialog.getByRole('button', { name: 'Add rule' }).click();
  await page.getByText('is active').waitFor();
  const mocked = await world.fetch('/moved');
  expect([mocked.status, mocked.headers['location']]).toEqual([302, '/orders']);
  await page.getByRole('button', { name: 'Undo' }).first().click();
  await page.getByText('Rule removed').waitFor();
});

describe('the filter', () => {
  it('completes values with counts, and judges only when typing stops', async () => {
    const filter = page.getByRole('combobox', { name: 'Filter' });
    await filter.click();
    await page.keyboard.type('method:');
    const option = page.getByRole('option', { name: /^GET/ });
    await option.waitFor();
    expect(Number((await option.textContent())!.replace(/\D/g, ''))).toBeGreaterThan(4);
    expect(await filter.getAttribute('aria-invalid')).toBe('false');
    await page.keyboard.type('PO');
    await page.getByRole('option', { name: /^POST/ }).waitFor();
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await expect.poll(query).toBe('method:POST');
    await filter.fill('status:');
    await page.getByRole('option', { name: /^404/ }).waitFor();
    await page.keyboard.press('Escape');
    await page.keyboard.type('x');
    await expect.poll(() => filter.getAttribute('aria-invalid')).toBe('true');
  });
});

describe('the palette', () => {
  it('finds what the table and its flows can do', async () => {
    await page.keyboard.press('j');
    for (const [typed, entry] of [['export pcap', /Export pcapng/], ['breakpoint', /New rule for this flow: break here/], ['sort dur', /Sort by duration/], ['import', /Import flows from a file/], ['export har', /Export HAR/], ['dark', /Theme: dark/], ['certificate', /CA certificate/], ['clear', /^Clear:/], ['documentation', /Guide to this page: Traffic/]] as const) {
      await page.keyboard.press('Control+k');
      await page.keyboard.type(typed);
      await page.getByRole('option', { name: entry }).waitFor();
      await page.keyboard.press('Escape');
    }
  });
});

it('clear deletes what matches the filter, after asking', async () => {
  for (const n of [1, 2, 3]) await world.send(`/clear/${n}`);
  await world.recorded(3, 'path:/clear');
  await page.goto(`http://${world.admin}/?q=path:/clear`);
  await expect.poll(() => rows().count()).toBe(3);
  await page.getByRole('button', { name: 'Clear…' }).click();
  await page.getByRole('dialog').getByText('3 flows match path:/clear').waitFor();
  await page.getByRole('button', { name: 'Delete all' }).click();
  await page.getByText('3 deleted').waitFor();
  await expect.poll(() => rows().count()).toBe(0);
  expect((await world.api<{ count: number }>('/flows/count?query=')).count).toBeGreaterThan(3);
});

describe('on a phone', () => {
  it('a row has two lines with what matters, large enough to touch', async () => {
    const phone = await world.page('/', { viewport: { width: 400, height: 800 }, hasTouch: true, colorScheme: 'dark' });
    const first = phone.locator('.drawn .line[data-id]').filter({ hasText: '/picture.png' }).first();
    await first.waitFor();
    const text = (await first.textContent())!;
    expect(text).toMatch(/GET/);
    expect(text).toMatch(/200/);
    expect(text).toMatch(/(µs|ms)/);
    expect(text).toMatch(/\d\d:\d\d:\d\d/);
    expect((await first.boundingBox())!.height).toBeGreaterThanOrEqual(44);
    await phone.context().close();
  });
});

it('rows of other days are separated', async () => {
  const har = JSON.stringify({ log: { version: '1.2', creator: { name: 't', version: '1' }, entries: ['2026-01-05', '2026-01-04'].map((d) => ({
    startedDateTime: `${d}T12:00:00Z`, time: 5, timings: { send: 1, wait: 2, receive: 2 }, cache: {},
    request: { method: 'GET', url: 'http://days.test/x', httpVersion: 'HTTP/1.1', headers: [], queryString: [], cookies: [], headersSize: -1, bodySize: 0 },
    response: { status: 200, statusText: 'OK', httpVersion: 'HTTP/1.1', headers: [], cookies: [], content: { size: 0, mimeType: 'text/plain' }, redirectURL: '', headersSize: -1, bodySize: 0 },
  })) } });
  await world.api('/import?format=har', { method: 'POST', headers: { 'content-type': 'application/octet-stream' }, body: har });
  await page.goto(`http://${world.admin}/?q=host:days.test`);
  await expect.poll(() => page.locator('.drawn .date').allTextContents()).toEqual([expect.stringMatching(/5 Jan/), expect.stringMatching(/4 Jan/)]);
  await header('Size').getByRole('button').click();
  await expect.poll(() => rows().first().textContent()).toMatch(/5 Jan( 2026|.12:00)/);
});

it('the waterfall has the phases of recorded flows', async () => {
  await expect.poll(() => row('/orders').locator('.p-wait').count()).toBe(1);
  expect(await row('/orders').locator('.c-fall').getAttribute('title')).toMatch(/wait \(TTFB\)/);
});
