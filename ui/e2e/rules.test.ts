// Flows held by rules, and rule files that change on disk while edited.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { World } from './world';

let world: World;
let page: Page;

const RULES = `rules:
  - name: look at it
    phase: request_body
    when: path:/echo
    then: { hold: { note: "of \${path}" } }
  - name: look at the answer
    phase: response_body
    when: path:/orders
    then: hold
  - name: look at what is said
    phase: message
    when: is:websocket
    then: hold
`;

const file = () => join(world.home, 'rules.yaml');
const card = () => page.getByRole('article');
const main = () => page.getByRole('main');
const editor = () => page.getByRole('textbox', { name: 'Rules', exact: true });

beforeAll(async () => {
  world = await World.start({ files: { 'rules.yaml': RULES } });
  page = await world.page('/rules');
});

afterAll(async () => {
  await world?.stop();
});

/** Sends text to the origin's echo endpoint; returns the response. */
function echo(text: string): Promise<Answer> {
  return ask('/echo', { method: 'POST', headers: { 'content-type': 'text/plain', 'x-test': 'one' }, body: text });
}

interface Answer {
  status: number;
  test: string;
  body: string;
}

async function ask(path: string, init: { method?: string; headers?: Record<string, string>; body?: string } = {}): Promise<Answer> {
  const answer = await world.fetch(path, init);
  return { status: answer.status, test: String(answer.headers['x-test'] ?? ''), body: answer.body.toString() };
}

// The card of the flow before disappears with the next update of the page.
beforeEach(async () => {
  if (page.url().endsWith('/rules')) await expect.poll(() => card().count(), { timeout: 8000 }).toBe(0);
});

describe('a request held by a rule', () => {
  it('continues unchanged', async () => {
    const answer = echo('as it came');
    await card().filter({ hasText: 'request held by look at it at request_body: of /echo' }).waitFor();
    await card().getByRole('button', { name: 'Continue' }).click();
    expect(await answer).toMatchObject({ status: 200, test: 'one', body: 'as it came' });
    await expect.poll(() => card().count()).toBe(0);
  });

  it('continues with changed and removed fields and a changed body', async () => {
    const answer = echo('before');
    await card().getByRole('button', { name: 'Edit' }).click();
    const fields = card().getByRole('textbox', { name: 'Header fields' });
    await fields.fill((await fields.inputValue()).replace(/x-test: one/i, 'x-test: two').replace(/content-type:.*\n?/i, ''));
    await card().getByRole('textbox', { name: 'Body' }).fill('after');
    await card().getByRole('textbox', { name: 'URL' }).fill(`http://${world.origin}/echo?changed`);
    await card().getByRole('button', { name: 'Send edited' }).click();
    expect(await answer).toMatchObject({ status: 200, test: 'two', body: 'after' });
    await world.recorded(1, 'query:changed');
  });

  it('is not sent with invalid fields, and the edit is kept', async () => {
    const answer = echo('kept');
    await card().getByRole('button', { name: 'Edit' }).click();
    await card().getByRole('textbox', { name: 'Header fields' }).fill('no field at all');
    await card().getByRole('button', { name: 'Send edited' }).click();
    await card().getByRole('alert').filter({ hasText: 'is not a header field' }).waitFor();
    expect(await card().getByRole('textbox', { name: 'Body' }).inputValue()).toBe('kept');
    await card().getByRole('button', { name: 'Close' }).click();
    await card().getByRole('button', { name: 'Continue' }).click();
    expect(await answer).toMatchObject({ status: 200, body: 'kept' });
  });

  it('is edited by keyboard alone, and its length is not a choice', async () => {
    const answer = echo('typed');
    await card().waitFor();
    await page.goto(`http://${world.admin}/approvals`);
    await card().waitFor();
    await page.keyboard.press('e');
    const body = card().getByRole('textbox', { name: 'Body' });
    await expect.poll(() => body.evaluate((node) => node === document.activeElement)).toBe(true);
    // One button sends while the form is open, and it says what.
    expect(await card().locator('button.main').allTextContents()).toEqual(['Send edited']);
    await page.keyboard.press('Escape');
    expect(await card().locator('button.main').allTextContents()).toEqual(['Continue']);
    await page.keyboard.press('e');
    const fields = card().getByRole('textbox', { name: 'Header fields' });
    expect(await fields.inputValue()).not.toMatch(/content-length/i);
    const before = await fields.inputValue();
    await fields.fill(`${before}\nContent-Length: 3`);
    await page.keyboard.press('Control+Enter');
    await card().getByRole('alert').filter({ hasText: 'Content-Length follows the body' }).waitFor();
    await fields.fill(before);
    await body.focus();
    await page.keyboard.press('Control+A');
    await page.keyboard.type('by hand');
    await page.keyboard.press('Control+Enter');
    expect(await answer).toMatchObject({ status: 200, body: 'by hand' });
    await page.goto(`http://${world.admin}/rules`);
  });

  it('is answered in place of the origin', async () => {
    const answer = echo('unanswered');
    await card().getByRole('button', { name: 'Respond' }).click();
    await card().getByLabel('Status').fill('418');
    await card().getByRole('textbox', { name: 'Body' }).fill('short and stout');
    await card().getByRole('button', { name: 'Send response' }).click();
    expect(await answer).toMatchObject({ status: 418, body: 'short and stout' });
  });

  it('is denied, and its flow shows that', async () => {
    const answer = echo('denied');
    await card().getByRole('button', { name: 'Deny' }).click();
    expect((await answer).status).toBe(403);
  });

  it('is counted in the navigation and listed under Approvals', async () => {
    const answer = echo('seen from elsewhere');
    const link = page.getByRole('navigation').getByRole('link', { name: /Approvals/ });
    await expect.poll(() => link.textContent(), { timeout: 8000 }).toMatch(/Approvals\s*1/);
    await link.click();
    await card().filter({ hasText: 'look at it' }).getByRole('button', { name: 'Continue' }).click();
    expect((await answer).body).toBe('seen from elsewhere');
    await expect.poll(() => link.textContent(), { timeout: 8000 }).not.toMatch(/\d/);
    await page.goto(`http://${world.admin}/rules`);
  });
});

it('a held response is changed: status and body', async () => {
  const answer = ask('/orders');
  await card().filter({ hasText: 'response held by look at the answer' }).waitFor();
  await card().getByRole('button', { name: 'Edit' }).click();
  await card().getByLabel('Status').fill('202');
  const body = card().getByRole('textbox', { name: 'Body' });
  expect(await body.inputValue()).toContain('Genève');
  await body.fill('{"changed":true}');
  await card().getByRole('button', { name: 'Send edited' }).click();
  expect(await answer).toMatchObject({ status: 202, body: '{"changed":true}' });
});

it('held messages are dropped, changed and continued', async () => {
  const done = world.webSocket();
  const held = card().filter({ hasText: 'message held by look at what is said' });
  await held.first().waitFor();
  const first = await held.first().textContent();
  await held.first().getByRole('button', { name: 'Drop' }).click();
  await expect.poll(async () => (await held.first().textContent({ timeout: 3000 }).catch(() => first)) !== first).toBe(true);
  await held.first().getByRole('button', { name: 'Edit' }).click();
  await held.first().getByRole('textbox', { name: 'Body' }).fill('said otherwise');
  await held.first().getByRole('button', { name: 'Send edited' }).click();
  let over = false;
  void done.then(() => (over = true));
  while (!over) {
    const next = held.first().getByRole('button', { name: 'Continue' });
    await next.click({ timeout: 500 }).catch(() => undefined);
  }
  await world.recorded(1, 'is:websocket');
  const { flows } = await world.api<{ flows: { id: string }[] }>('/flows?query=is:websocket');
  const { messages } = await world.api<{ messages: { payload: unknown }[] }>(`/flows/${flows[0]!.id}/messages`);
  expect(messages.filter((m) => m.payload === 'said otherwise').length).toBe(1);
}, 60_000);

describe('a rule file that changes on disk', () => {
  const one = (name: string) => `rules:\n  - name: ${name}\n    when: host:never.test\n    then: block\n`;

  it('is reloaded if there are no edits', async () => {
    await page.goto(`http://${world.admin}/rules`);
    await expect.poll(() => editor().evaluate((n) => (n as HTMLElement).isContentEditable), { timeout: 15_000 }).toBe(true);
    writeFileSync(file(), one('from elsewhere'));
    await expect.poll(() => editor().textContent(), { timeout: 8000 }).toContain('from elsewhere');
    await page.getByText('The file changed on disk').waitFor();
    await expect.poll(() => page.getByRole('table').first().textContent(), { timeout: 8000 }).toContain('from elsewhere');
  });

  it('does not discard edits, and is not overwritten by accident', async () => {
    await editor().click();
    await page.keyboard.press('Control+End');
    await page.keyboard.insertText('# mine');
    writeFileSync(file(), one('again from elsewhere'));
    await page.getByText('This file changed on disk while you were editing').waitFor();
    expect(await editor().textContent()).toContain('# mine');
    await page.keyboard.press('Control+s');
    await page.locator('.notice.wrong').first().waitFor();
    expect(readFileSync(file(), 'utf8')).toBe(one('again from elsewhere'));

    // After leaving the page and returning, the edit and the notice are still there.
    await page.getByRole('link', { name: 'Overview' }).click();
    await page.getByRole('heading', { name: 'Overview', level: 1 }).waitFor();
    await page.keyboard.press('g');
    await page.keyboard.press('r');
    await expect.poll(() => editor().textContent(), { timeout: 8000 }).toContain('# mine');
    await page.getByRole('button', { name: 'Keep mine' }).click();
    await page.getByRole('button', { name: 'Save and apply' }).click();
    await page.getByText('Rules applied').waitFor();
    expect(readFileSync(file(), 'utf8')).toBe(`${one('from elsewhere')}# mine`);
  });

  it('is adopted on request', async () => {
    await editor().click();
    await page.keyboard.insertText('# to be lost');
    writeFileSync(file(), one('the last word'));
    await page.getByRole('button', { name: 'Use the version on disk' }).click();
    await expect.poll(() => editor().textContent()).toContain('the last word');
    expect(await editor().textContent()).not.toContain('to be lost');
  });

  it('with an error is shown on reload, and the previous rules stay active', async () => {
    writeFileSync(file(), 'rules:\n  - name: wrong\n    then: nosuchthing\n');
    await page.getByRole('button', { name: 'Reload' }).click();
    await page.getByText('1 error').waitFor();
    await expect.poll(() => main().textContent()).toContain('line 3');
    expect(await page.getByRole('table').first().textContent()).toContain('the last word');
  });
});

it('rules that an agent proposed are tried, shown and applied', async () => {
  writeFileSync(file(), RULES);
  await page.goto(`http://${world.admin}/rules`);
  const text = 'rules:\n  - name: teapot\n    when: path:/echo\n    then: { tag: tea }\n';
  const propose = (reason: string) => world.api('/rules/proposals', { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ text, reason }) });
  await propose('the echo is tea');
  const proposal = page.getByRole('article', { name: 'Proposal 1' });
  await proposal.getByText('the echo is tea').waitFor();
  expect(await proposal.getByRole('link').first().textContent()).toContain('/echo');
  expect(readFileSync(file(), 'utf8')).not.toContain('teapot');
  await proposal.getByRole('button', { name: 'Apply' }).click();
  await page.getByText('The proposed rules were added').waitFor();
  expect(readFileSync(file(), 'utf8')).toContain('teapot');
  await expect.poll(() => page.getByRole('table').first().textContent()).toContain('teapot');
  await propose('again');
  const second = page.getByRole('article', { name: 'Proposal 2' });
  await second.getByRole('button', { name: 'Dismiss' }).click();
  await second.waitFor({ state: 'detached' });
});

it('held flows have a badge, and a denied one shows why it failed', async () => {
  await page.goto(`http://${world.admin}/?q=${encodeURIComponent('tag:held error:denied')}`);
  const row = page.locator('.drawn .line[data-id]').first();
  await row.waitFor();
  // What has no place beside them is named by the number behind them.
  expect(await row.locator('.c-badges .badge').allTextContents()).toEqual(['!', 'held']);
  expect(await row.locator('.c-badges .rest').getAttribute('title')).toContain('rule: a rule matched');
  await row.click();
  await expect.poll(() => page.getByRole('tabpanel').textContent()).toContain('look at it');
});

it('no external requests and no console errors', () => {
  // The browser wraps replaced text in inline styles, which the content security policy blocks and the editor removes.
  expect([world.complaints.filter((c) => !c.startsWith('Applying inline style')), world.strays]).toEqual([[], []]);
});
