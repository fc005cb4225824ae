// Bodies and heads taken apart: tables, cookies, tokens, operations, parts, event text; finding, saving, importing, comparing.
import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { Download, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { HOSTILE } from './origin';
import { World } from './world';

let world: World;
let page: Page;
const panel = () => page.getByRole('tabpanel');
const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');
const JWT = `${part({ alg: 'RS256', kid: 'k1' })}.${part({ sub: 'ann', exp: 1 })}.c2ln`;

const post = (path: string, type: string, body: string) => world.send(path, { method: 'POST', headers: { 'content-type': type }, body });

beforeAll(async () => {
  world = await World.start({ config: () => '[record]\nmask_headers = ["x-secret"]\n' });
  await world.send(`/echo/table?q=Zo%C3%AB+K&empty=&q=2`, { headers: { cookie: `a=1; token=${JWT}`, 'x-secret': 'hush-hush' } });
  await world.send('/cookies');
  await post('/echo', 'application/x-www-form-urlencoded', `user=ann%40example.com&note=two+words&evil=${encodeURIComponent(HOSTILE)}`);
  await post('/echo', 'application/json', JSON.stringify({ query: 'mutation Pay($id: ID!) { pay(id: $id) }', variables: { id: 7 } }));
  await post('/echo', 'multipart/form-data; boundary=B', `--B\r\nContent-Disposition: form-data; name="title"\r\n\r\n${HOSTILE}\r\n--B\r\nContent-Disposition: form-data; name="f"; filename="../p.png"\r\nContent-Type: text/html\r\n\r\nPLACE\r\n--B--`.replace('PLACE', 'GIF89a\u0001'));
  await post('/echo', 'text/plain', Array.from({ length: 60_000 }, (_, i) => `line ${i}${i % 20_000 === 19_999 ? ' Needle' : ''}`).join('\n'));
  await world.send('/model-events');
  await world.send('/connect');
  await world.send('/bedrock');
  await world.recorded(9);
  page = await world.page('/');
});

afterAll(async () => {
  await world?.stop();
});

afterEach(() => {
  expect([world.complaints, world.strays]).toEqual([[], []]);
});

async function show(query: string, tab: string) {
  const { flows } = await world.api<{ flows: { id: string }[] }>(`/flows?${new URLSearchParams({ query }).toString()}`);
  await page.goto(`http://${world.admin}/?${new URLSearchParams({ id: flows[0]!.id, tab }).toString()}`);
  await panel().waitFor();
  return flows[0]!.id;
}

const rows = (name: string) => page.getByRole('region', { name }).getByRole('row');
/** The texts of a table's rows. */
const table = (name: string) => rows(name).evaluateAll((list) => list.map((row) => [...row.querySelectorAll('th, td:nth-child(2)')].map((c) => c.textContent?.trim())));

it('a row names the GraphQL operation of its request', async () => {
  await page.goto(`http://${world.admin}/?${new URLSearchParams({ q: 'req.body:mutation' }).toString()}`);
  await expect.poll(() => page.locator('.drawn .line[data-id]').first().textContent()).toMatch(/mutation Pay\s*\/echo/);
});

describe('request and response at once', () => {
  const summaries = () => panel().locator('summary');
  const opened = () => panel().locator('details').evaluateAll((list) => list.map((d) => (d as HTMLDetailsElement).open));

  it('are side by side, with folded fields and both bodies in view', async () => {
    await page.setViewportSize({ width: 1280, height: 800 });
    await show('path:/echo req.type:application/x-www-form-urlencoded', 'exchange');
    await panel().getByText('two words').first().waitFor();
    const [left, right] = [panel().getByRole('region', { name: 'Request', exact: true }), panel().getByRole('region', { name: 'Response', exact: true })];
    const [a, b] = [(await left.boundingBox())!, (await right.boundingBox())!];
    expect([a.y === b.y, b.x > a.x + 300]).toEqual([true, true]);
    expect(await opened()).toEqual([false, false]);
    expect(await summaries().first().textContent()).toMatch(/^Headers \d+$/);
    for (const side of [left, right]) await side.getByRole('button', { name: 'Hex' }).waitFor();
    // Where there is no body, the fields are what there is to see.
    await show('path:/cookies', 'exchange');
    expect(await opened()).toEqual([true, true]);
  });

  it('keep folds and views of bodies as they were left, in a new page, too', async () => {
    await show('path:/echo req.type:application/x-www-form-urlencoded', 'exchange');
    await summaries().first().click();
    await expect.poll(opened).toEqual([true, true]);
    await panel().getByRole('button', { name: 'Hex' }).last().click();
    await page.reload();
    await expect.poll(opened).toEqual([true, true]);
    const pressed = () => panel().getByRole('button', { name: 'Hex' }).evaluateAll((list) => list.map((b) => b.ariaPressed));
    await expect.poll(pressed).toEqual(['true', 'true']);
    await panel().getByRole('button', { name: 'Table' }).first().click();
    await summaries().first().click();
    await page.setViewportSize({ width: 1440, height: 860 });
  });
});

it('a row has the sign of the program that its User-Agent names', async () => {
  await world.send('/orders?signed', { headers: { 'user-agent': 'curl/8.5.0' } });
  await page.goto(`http://${world.admin}/?${new URLSearchParams({ q: 'query:signed' }).toString()}`);
  await page.locator('.drawn .app[title="Sent by curl"]').getByText('C', { exact: true }).waitFor();
});

describe('streams that are bodies', () => {
  it('JSON in the frames of Connect is a tree', async () => {
    await show('path:/connect', 'response');
    await panel().getByText('42').first().waitFor();
    expect(await panel().textContent()).not.toContain('Not JSON');
    await page.getByRole('group', { name: 'View of the body' }).getByRole('button', { name: 'Pretty' }).click();
    await panel().getByText('# message 2').waitFor();
  });

  it('events of Bedrock are listed, with their text', async () => {
    await show('path:/bedrock', 'response');
    await expect.poll(() => page.getByTestId('assembled').textContent()).toBe(`Hello ${HOSTILE}`);
    const events = page.getByRole('list', { name: 'Events' });
    expect(await events.getByRole('listitem').count()).toBeGreaterThanOrEqual(3);
    await events.getByText('messageStop').waitFor();
    await events.getByText('end_turn').waitFor();
  });
});

describe('heads', () => {
  it('query parameters and cookies are tables, and tokens are decoded', async () => {
    await show('path:/echo/table', 'request');
    await rows('Query parameters').first().waitFor();
    expect(await table('Query parameters')).toEqual([['q', 'Zoë K'], ['empty', ''], ['q', '2']]);
    expect(await table('Cookies')).toEqual([['a', '1'], ['token', JWT]]);
    const jwt = page.getByTestId('jwt');
    for (const words of ['"kid": "k1"', '"sub": "ann"', 'Expired 1970-01-01T00:00:01Z', 'signature not verified']) expect(await jwt.textContent()).toContain(words);
    await rows('Query parameters').first().getByRole('button').focus();
    await page.keyboard.press('Enter');
    await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toBe('Zoë K');
  });

  it('cookies that a response sets have their attributes, and what browsers reject', async () => {
    await show('path:/cookies', 'response');
    await rows('Cookies set').first().waitFor();
    const text = (await page.getByRole('region', { name: 'Cookies set' }).textContent())!;
    for (const words of ['HttpOnly', 'Max-Age=60', 'SameSite=None without Secure: browsers reject it']) expect(text).toContain(words);
  });
});

describe('bodies', () => {
  it('forms are tables', async () => {
    await show('method:POST req.header.content-type:*urlencoded*', 'request');
    await rows('Fields').first().waitFor();
    expect(await table('Fields')).toEqual([['user', 'ann@example.com'], ['note', 'two words'], ['evil', HOSTILE]]);
    expect(await page.evaluate(() => 'pwned' in window)).toBe(false);
  });

  it('GraphQL shows operation, variables and query', async () => {
    await show('method:POST req.header.content-type:*json*', 'request');
    const operation = page.getByRole('region', { name: 'Operation Pay' });
    await operation.waitFor();
    for (const words of ['mutation', 'Pay', '"id"', 'pay(id: $id)']) expect(await operation.textContent()).toContain(words);
    await page.getByRole('button', { name: 'Tree' }).click();
    await expect.poll(() => panel().textContent()).toContain('"variables"');
  });

  it('multipart shows its parts; images by their content, files to save', async () => {
    await show('method:POST req.header.content-type:*multipart*', 'request');
    const parts = panel().getByRole('listitem');
    await expect.poll(() => parts.count()).toBe(2);
    expect(await parts.first().textContent()).toContain(HOSTILE);
    // The type is told by the bytes, not by the sender: no HTML is ever made of a part.
    expect(await parts.nth(1).getByRole('img').getAttribute('src')).toMatch(/^blob:/);
    const [file] = await Promise.all([page.waitForEvent('download'), parts.nth(1).getByRole('button', { name: 'Save' }).click()]);
    expect(file.suggestedFilename()).not.toContain('/');
    expect(await page.evaluate(() => 'pwned' in window)).toBe(false);
  });

  it('Ctrl+F finds in a long body, with counts and keys', async () => {
    await show('method:POST req.header.content-type:text/plain', 'request');
    await panel().focus();
    await page.keyboard.press('Control+f');
    const field = page.getByRole('textbox', { name: 'Find in the body' });
    await expect.poll(() => field.evaluate((n) => n === document.activeElement)).toBe(true);
    await page.keyboard.type('needle');
    const found = page.getByRole('search').getByRole('status');
    await expect.poll(() => found.textContent()).toContain('1 of 3');
    await page.keyboard.press('Enter');
    await page.keyboard.press('Enter');
    await expect.poll(() => found.textContent()).toContain('3 of 3');
    // The match is in view.
    const inView = () => page.evaluate(() => {
      const range = [...(CSS.highlights.get('found-current') as unknown as Iterable<Range>)][0]!;
      const [match, shown] = [range.getBoundingClientRect(), document.getElementById('panel')!.getBoundingClientRect()];
      return [range.toString(), match.top >= shown.top && match.bottom <= shown.bottom];
    });
    await expect.poll(inView).toEqual(['Needle', true]);
    await page.keyboard.press('Enter');
    await expect.poll(() => found.textContent()).toContain('1 of 3');
    await page.keyboard.press('Shift+Enter');
    await expect.poll(() => found.textContent()).toContain('3 of 3');
    await field.fill('nothing like this');
    await expect.poll(() => found.textContent()).toContain('no match');
    await page.keyboard.press('Escape');
    expect(await field.count()).toBe(0);
    expect(await page.evaluate(() => document.activeElement?.id)).toBe('panel');
  });

  it('the text of a model is assembled beside its events', async () => {
    await show('path:/model-events', 'messages');
    await expect.poll(() => page.getByTestId('assembled').allTextContents()).toEqual(['let me see', 'Hello, world']);
    await expect.poll(() => panel().locator('li').first().textContent()).toContain('content_block_delta');
  });
});

async function saved(download: Download): Promise<string> {
  return readFileSync(await download.path(), 'utf8');
}

describe('files', () => {
  it('a flow is copied as code, and says what was masked', async () => {
    await show('path:/echo/table', 'request');
    for (const [language, start] of [['PowerShell', '# The value of x-secret'], ['Go', '// The value of x-secret']] as const) {
      await page.getByRole('button', { name: 'Copy as' }).click();
      await page.getByRole('menuitem', { name: language, exact: true }).click();
      await page.getByText(`Copied as ${language}; fill in $X_SECRET`).first().waitFor();
      await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toContain(start);
    }
  });

  it('a flow is saved as one page without scripts and resources', async () => {
    await show('method:POST req.header.content-type:*urlencoded*', 'request');
    await page.getByRole('button', { name: 'Save as' }).click();
    const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('menuitem', { name: 'HTML page to share' }).click()]);
    const html = await saved(file);
    expect(file.suggestedFilename()).toMatch(/\.html$/);
    expect(html).toContain('ann%40example.com');
    const path = join(world.home, 'shared.html');
    writeFileSync(path, html);
    const other = await page.context().newPage();
    const asked: string[] = [];
    other.on('request', (r) => asked.push(r.url()));
    await other.goto(`file://${path}`);
    expect(await other.getByRole('heading', { level: 1 }).textContent()).toContain('POST http://');
    expect([asked.length, await other.evaluate(() => 'pwned' in window)]).toEqual([1, false]);
    await other.close();
  });

  it('a session is saved with marks, and restored by a drop elsewhere', async () => {
    const id = await show('path:/cookies', 'response');
    await world.api(`/flows/${id}`, { method: 'PATCH', headers: { 'content-type': 'application/json' }, body: '{"add_tags":["starred"],"comment":"look at this"}' });
    await page.goto(`http://${world.admin}/?q=path:/cookies`);
    await page.getByRole('button', { name: 'Export' }).click();
    const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('menuitem', { name: /Session file/ }).click()]);
    const text = await saved(file);
    await world.api(`/flows/${id}`, { method: 'DELETE' }).catch(() => undefined);
    await page.goto(`http://${world.admin}/overview`);
    const drop = async (name: string, content: string) => {
      const data = await page.evaluateHandle(([n, c]) => {
        const transfer = new DataTransfer();
        transfer.items.add(new File([c!], n!));
        return transfer;
      }, [name, content]);
      await page.dispatchEvent('main', 'dragenter', { dataTransfer: data });
      await page.getByText('Drop to import flows').waitFor();
      await page.dispatchEvent('main', 'drop', { dataTransfer: data });
    };
    await drop('session.jsonl', text);
    await page.getByText('1 flow was imported').waitFor();
    const flow = await world.api<{ tags: string[]; comment: string }>(`/flows/${id}`);
    expect([flow.tags.includes('starred'), flow.comment]).toEqual([true, 'look at this']);
    await drop('session.jsonl', text);
    await page.getByText('1 already recorded').waitFor();
    await drop('picture.png', 'x');
    await page.getByText('picture.png: unsupported format').waitFor();
    await drop('broken.har', '{"log":{"entries":[');
    await page.getByText(/Import failed/).last().waitFor();
  });

  it.each(['mitm', 'saz', 'fxzy'])('a %s archive that is dropped is imported', async (format) => {
    // They hold the same flows.
    await world.api('/flows/prune', { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ query: 'is:imported' }) });
    await page.goto(`http://${world.admin}/overview`);
    const bytes = readFileSync(resolve(`../fuzz/corpus/${format}/ours`)).toString('base64');
    const data = await page.evaluateHandle(([name, text]) => {
      const transfer = new DataTransfer();
      transfer.items.add(new File([Uint8Array.from(atob(text!), (c) => c.charCodeAt(0))], name!));
      return transfer;
    }, [`archive.${format}`, bytes]);
    await page.dispatchEvent('main', 'drop', { dataTransfer: data });
    await page.getByText(/^[1-9]\d* flows? (was|were) imported/).waitFor();
    await expect.poll(async () => (await world.api<{ count: number }>('/flows/count?query=is:imported')).count).toBeGreaterThan(0);
    await page.getByRole('button', { name: 'Show' }).click();
    await page.locator('.drawn .line[data-id]').first().waitFor();
    expect(new URL(page.url()).searchParams.get('q')).toBe('is:imported');
  });

  it('a comparison is headed by methods and addresses, and its JSON is formatted', async () => {
    await post('/echo/left', 'application/json', '{"a":{"b":1}}');
    await post('/echo/right', 'application/json', '{"a":[1,2]}');
    await world.recorded(2, 'path:/echo/left OR path:/echo/right');
    await page.goto(`http://${world.admin}/?${new URLSearchParams({ q: 'path:/echo/left OR path:/echo/right' }).toString()}`);
    await page.locator('.drawn .line[data-id]').nth(1).waitFor();
    await page.locator('.scroller').focus();
    for (const key of ['j', 'x', 'j', 'x', 'c']) await page.keyboard.press(key);
    const dialog = page.getByRole('dialog', { name: 'Compare' });
    await expect.poll(() => dialog.textContent()).toContain('/echo/left 200');
    expect(await dialog.textContent()).toContain('/echo/right 200');
    await expect.poll(() => dialog.locator('td').allTextContents()).toContain('{\n  "b": 1\n}');
    await page.keyboard.press('Escape');
  });
});
