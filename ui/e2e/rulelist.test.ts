// The list of active rules: switches, order, forms and undo, all of which edit the text of the file.
import AxeBuilder from 'axe-core';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { EMPTY, KINDS, NETWORKS, ruleOf, type RuleForm } from '../src/rules/fromFlow';
import { ruleText } from '../src/rules/ruleText';
import { World } from './world';

let world: World;
let page: Page;

const RULES = `# mine
rules:
  # about the first
  - name: first
    when: path:/one
    then: { tag: one }
  - name: second
    when: path:/two
    then: { answer: { body: two } }

  - name: third # odd
    then: { tag: all }
`;

const path = () => join(world.home, 'rules.yaml');
const file = () => readFileSync(path(), 'utf8');
const names = () => page.locator('tbody tr .name > span:first-child').allTextContents();
const line = (name: string) => page.getByRole('row').filter({ hasText: name });
const undo = () => page.getByRole('button', { name: 'Undo', exact: true }).first();

beforeAll(async () => {
  world = await World.start({ files: { 'rules.yaml': RULES } });
  page = await world.page('/rules');
});

afterAll(async () => {
  await world?.stop();
});

beforeEach(async () => {
  if (file() !== RULES) writeFileSync(path(), RULES);
  await expect.poll(async () => (await world.api<{ rules: { name: string; enabled: boolean }[] }>('/rules')).rules.map((r) => `${r.name} ${r.enabled}`).join())
    .toBe('first true,second true,third true');
  await page.goto(`http://${world.admin}/rules`);
  await expect.poll(names).toEqual(['first', 'second', 'third']);
});

afterEach(() => {
  expect(world.complaints, 'the browser complained').toEqual([]);
});

async function clean() {
  await page.evaluate(AxeBuilder.source);
  const found = await page.evaluate(async () => {
    const axe = (globalThis as unknown as { axe: { run(): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }> } }).axe;
    return (await axe.run()).violations.map((v) => `${v.id}: ${v.nodes[0]?.html}`);
  });
  expect(found).toEqual([]);
}

it('every rule that the form makes is valid, in YAML and in TOML', async () => {
  const base = { ...EMPTY, host: '*.api.test', port: '8443', path: '/a b/"c"*', method: 'POST', body: 'one\n\ttwo "three" ${four}\n', file: '/tmp', header: 'X-A', value: "it's", message: 'no: # way', note: 'look' };
  const forms: RuleForm[] = [
    ...KINDS.map(({ kind }) => ({ ...base, kind })),
    ...NETWORKS.map((n) => ({ ...base, kind: 'throttle' as const, network: n.name, delay: n.delay, rate: n.rate })),
    { ...base, kind: 'hold', holdAt: 'response', path: '/x y', note: '' },
    { ...base, kind: 'header', side: 'response', value: '', path: '/v1/*' },
    { ...base, kind: 'map_local', fallThrough: true, host: '::1' },
    { ...base, kind: 'map_remote', keepHost: true, path: '' },
    { ...base, kind: 'block', blockStatus: '451', message: '' },
  ];
  for (const name of ['rules.yaml', 'rules.toml']) {
    const text = (name.endsWith('.yaml') ? 'rules:\n' : '') + forms.map((f, i) => ruleText(ruleOf({ ...f, name: `rule ${i}` }), name)).join('\n');
    const checked = await world.api<{ problems: unknown[]; rules: { rules: unknown[] } | null }>('/rules/check', {
      method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ text, name }),
    });
    expect(checked.problems, `${name}\n${text}`).toEqual([]);
    expect(checked.rules?.rules.length).toBe(forms.length);
  }
});

describe('a rule', () => {
  it('is switched off and on, and its matches are counted', async () => {
    await clean();
    await world.send('/two');
    await expect.poll(() => line('second').locator('.number').textContent()).toBe('1');
    const control = page.getByRole('switch', { name: 'Enable second' });
    await control.click();
    await expect.poll(() => control.getAttribute('aria-checked')).toBe('false');
    expect(file()).toBe(RULES.replace('name: second\n', 'name: second\n    enabled: false\n'));
    expect((await world.fetch('/two')).body.toString()).not.toBe('two');
    await control.click();
    await expect.poll(() => control.getAttribute('aria-checked')).toBe('true');
    expect((await world.fetch('/two')).body.toString()).toBe('two');
  });

  it('is moved by keyboard and by drag, with its comments, and each is undone', async () => {
    await page.getByRole('button', { name: 'Move first' }).focus();
    await page.keyboard.press('ArrowDown');
    await expect.poll(names).toEqual(['second', 'first', 'third']);
    expect(file()).toContain('  # about the first\n  - name: first');
    await expect.poll(() => page.evaluate(() => document.activeElement?.getAttribute('aria-label'))).toBe('Move first');
    await page.keyboard.press('ArrowDown');
    await expect.poll(names).toEqual(['second', 'third', 'first']);
    await line('second').getByRole('button', { name: 'Move second' }).dragTo(line('first').first());
    await expect.poll(names).toEqual(['third', 'first', 'second']);
    for (const before of [['second', 'third', 'first'], ['second', 'first', 'third'], ['first', 'second', 'third']]) {
      await undo().click();
      await expect.poll(names).toEqual(before);
    }
    expect(file()).toBe(RULES);
  });

  it('is deleted by its menu', async () => {
    await page.getByRole('button', { name: 'More for second' }).click();
    await page.getByRole('menuitem', { name: 'Delete' }).click();
    await expect.poll(names).toEqual(['first', 'third']);
    expect(file()).not.toContain('second');
    await undo().click();
    await expect.poll(names).toEqual(['first', 'second', 'third']);
  });

  it('keeps its menu while the list changes', async () => {
    await page.getByRole('button', { name: 'More for second' }).click();
    const remove = page.getByRole('menuitem', { name: 'Delete' });
    await remove.waitFor();
    writeFileSync(path(), RULES.replace('rules:\n', 'rules:\n  - name: zeroth\n    then: { tag: zero }\n'));
    await expect.poll(names).toEqual(['zeroth', 'first', 'second', 'third']);
    await remove.click();
    await expect.poll(names).toEqual(['zeroth', 'first', 'third']);
  });

  it('is found in the text from its form', async () => {
    await page.getByRole('button', { name: 'More for third' }).click();
    await page.getByRole('menuitem', { name: 'Edit…' }).click();
    await page.getByRole('button', { name: 'Open the whole file at this rule' }).click();
    await expect.poll(() => page.getByRole('dialog').count()).toBe(0);
    await expect.poll(() => page.getByRole('textbox', { name: 'Rules', exact: true }).evaluate((n) => n.contains((n.getRootNode() as ShadowRoot).activeElement))).toBe(true);
  });

  it('is edited in a form, which keeps comments and shows mistakes', async () => {
    await page.getByRole('button', { name: 'More for third' }).click();
    await page.getByRole('menuitem', { name: 'Edit…' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Name').fill('last');
    await dialog.getByLabel(/^When/).fill('stats:4');
    await dialog.locator('.bad').first().waitFor();
    expect(await dialog.getByRole('button', { name: 'Save and apply' }).isDisabled()).toBe(true);
    await dialog.getByLabel(/^When/).fill('status:404');
    await clean();
    await dialog.getByRole('button', { name: 'Save and apply' }).click();
    await expect.poll(names).toEqual(['first', 'second', 'last']);
    expect(file()).toContain('  - when: status:404\n    name: last # odd\n    then: { tag: all }\n');
    await expect.poll(() => page.getByRole('textbox', { name: 'Rules', exact: true }).textContent()).toContain('name: last');
  });
});

it('a new rule is made by a form, and appears in the text beside it', async () => {
  await page.getByRole('button', { name: 'New rule' }).click();
  await page.getByRole('menuitem', { name: 'Rewrite a header…' }).click();
  const dialog = page.getByRole('dialog');
  expect(await dialog.getByRole('button', { name: 'Add rule' }).isDisabled()).toBe(true);
  await dialog.getByLabel(/^Message /).selectOption('response');
  await dialog.getByLabel('Name', { exact: true }).first().fill('X-From');
  await dialog.getByLabel('Value').fill('me');
  await dialog.getByLabel('Path').fill('/orders');
  await dialog.getByRole('button', { name: 'Add rule' }).click();
  await expect.poll(async () => (await names()).length).toBe(4);
  expect((await world.fetch('/orders')).headers['x-from']).toBe('me');
  await expect.poll(() => page.getByRole('textbox', { name: 'Rules', exact: true }).textContent()).toContain('X-From');
  await undo().click();
  await expect.poll(names).toEqual(['first', 'second', 'third']);
  expect((await world.fetch('/orders')).headers['x-from']).toBeUndefined();
});

it('a rule is built of several actions beside its text, and both are the same', async () => {
  await page.getByRole('button', { name: 'New rule' }).click();
  await page.getByRole('menuitem', { name: 'Tag…' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Path').fill('/orders');
  await dialog.getByLabel('Response status').fill('200');
  await dialog.getByRole('button', { name: 'More actions and text…' }).click();
  const text = dialog.getByLabel('Text', { exact: true });
  expect(await dialog.getByLabel(/^When/).inputValue()).toBe('path:="/orders" status:200');
  await dialog.getByLabel('Name', { exact: true }).fill('both');
  const then = dialog.getByRole('region', { name: 'Then' });
  await then.getByLabel('Add an action').selectOption('set_response_header');
  await then.getByRole('group', { name: 'set_response_header' }).getByLabel('Name').fill('X-Built');
  await then.getByRole('group', { name: 'set_response_header' }).getByLabel('Name').blur();
  await then.getByRole('group', { name: 'set_response_header' }).getByLabel('Value').first().fill('yes');
  await expect.poll(() => text.inputValue()).toContain('      - tag: seen\n      - set_response_header:\n          X-Built: "yes"');
  await then.getByRole('button', { name: 'Move tag down' }).click();
  expect(await text.inputValue()).toMatch(/X-Built: "yes"\n +- tag: seen/);
  // The other way round: what is written in the text is in the form.
  await text.fill((await text.inputValue()).replace('tag: seen', 'tag: built'));
  await expect.poll(() => then.getByLabel('tag', { exact: true }).inputValue()).toBe('built');
  await clean();
  await dialog.getByRole('button', { name: 'Add rule' }).click();
  await expect.poll(async () => (await names()).at(-1)).toBe('both');
  expect((await world.fetch('/orders')).headers['x-built']).toBe('yes');
  await world.recorded(1, 'tag:built');
  // Undo is still there after a reload of the page.
  await page.reload();
  await expect.poll(() => undo().isEnabled()).toBe(true);
  await undo().click();
  await expect.poll(names).toEqual(['first', 'second', 'third']);
  expect(file()).toBe(RULES);
});

it('the actions of a rule are changed by the fields that its schema has', async () => {
  await page.getByRole('button', { name: 'More for second' }).click();
  await page.getByRole('menuitem', { name: 'Edit…' }).click();
  const dialog = page.getByRole('dialog');
  const then = dialog.getByRole('region', { name: 'Then' });
  await then.getByLabel('body', { exact: true }).fill('changed');
  await then.getByLabel('status', { exact: true }).fill('418');
  await dialog.getByRole('button', { name: 'Save and apply' }).click();
  await expect.poll(() => dialog.count()).toBe(0);
  const answer = await world.fetch('/two');
  expect([answer.status, answer.body.toString()]).toEqual([418, 'changed']);
  await undo().click();
  await expect.poll(file).toBe(RULES);
});

it('while the text has unsaved edits, the switches of its rules are locked', async () => {
  const editor = page.getByRole('textbox', { name: 'Rules', exact: true });
  await expect.poll(() => editor.evaluate((n) => (n as HTMLElement).isContentEditable), { timeout: 15_000 }).toBe(true);
  await editor.click();
  await page.keyboard.press('Control+Home');
  await page.keyboard.type('# more\n');
  await expect.poll(() => page.getByRole('switch', { name: 'Enable first' }).isDisabled()).toBe(true);
  await page.keyboard.press('Control+s');
  await expect.poll(() => page.getByRole('switch', { name: 'Enable first' }).isDisabled()).toBe(false);
  await undo().click();
  await expect.poll(file).toBe(RULES);
});
