// The core tasks, each once by mouse and once by keyboard only, with what they take.
import { readFileSync } from 'node:fs';
import type { Locator, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { World } from './world';

const HOLD = 'rules:\n  - name: look\n    when: path:/held\n    then: hold\n';

let world: World;
let page: Page;
let port = '';

/** Counts what a person does; waiting is free. */
class Hands {
  clicks = 0;
  keys = 0;
  /** Characters of text, such as a name or a filter. */
  typed = 0;
  private readonly begun = performance.now();

  async click(target: Locator, options: Parameters<Locator['click']>[0] = {}): Promise<void> {
    await target.click(options);
    this.clicks += 1;
  }

  async press(...keys: string[]): Promise<void> {
    for (const key of keys) {
      await page.keyboard.press(key);
      this.keys += 1;
    }
  }

  async type(text: string): Promise<void> {
    await page.keyboard.type(text);
    this.typed += text.length;
  }

  /** Tab until the focus is here. */
  async tabTo(target: Locator, most = 40): Promise<void> {
    for (let i = 0; i < most && !(await target.evaluate((node) => node === document.activeElement)); i += 1) await this.press('Tab');
    expect(await target.evaluate((node) => node === document.activeElement)).toBe(true);
  }

  async palette(text: string): Promise<void> {
    await this.press('Control+k');
    await page.getByRole('dialog', { name: 'Command palette' }).waitFor();
    await this.type(text);
    await this.press('Enter');
  }

  get seconds(): string {
    return ((performance.now() - this.begun) / 1000).toFixed(1);
  }
}

interface Task {
  name: string;
  /** The page on which it begins. */
  from: string;
  clicks: number;
  keys: number;
  prepare?: () => Promise<void>;
  mouse: (hands: Hands) => Promise<void>;
  keyboard: (hands: Hands) => Promise<void>;
  /** What is then so. */
  done: (turn: number) => Promise<void>;
}

const table: Record<string, Record<string, string | number>> = {};

beforeAll(async () => {
  world = await World.start({ config: () => '[upstream.hosts]\n"shop.test" = ["127.0.0.1"]\n', files: { 'rules.yaml': HOLD } });
  port = world.origin.split(':')[1]!;
  page = await world.page('/');
});

afterAll(async () => {
  await world?.stop();
  console.table(table);
});

afterEach(() => {
  expect([world.complaints.filter((c) => !c.startsWith('Applying inline style')), world.strays]).toEqual([[], []]);
});

const shop = () => `shop.test:${port}`;
const rows = () => page.locator('.drawn .line[data-id]');
const row = (text: string) => rows().filter({ hasText: text }).first();
const dialog = () => page.getByRole('dialog');
const button = (name: string | RegExp) => page.getByRole('button', { name, exact: typeof name === 'string' });
const menu = (name: string) => page.getByRole('menuitem', { name, exact: true });
const rules = async () => (await world.api<{ rules: { name: string }[] }>('/rules')).rules.length;

const tasks: Task[] = [
  {
    name: 'find a flow by host', from: '/', clicks: 3, keys: 2,
    mouse: async (hands) => {
      await hands.click(row('shop.test'), { button: 'right' });
      await hands.click(menu('Filter by'));
      await hands.click(menu('Host shop.test'));
    },
    keyboard: async (hands) => {
      await hands.press('/');
      await hands.type('host:shop.test');
      await hands.press('Enter');
    },
    done: async () => {
      await expect.poll(() => rows().allTextContents()).toEqual([expect.stringContaining('shop.test')]);
    },
  },
  {
    name: 'open its response body', from: '/?q=host:shop.test', clicks: 2, keys: 3,
    mouse: async (hands) => {
      await hands.click(row('/orders'));
      await hands.click(page.getByRole('tab', { name: 'Response' }));
    },
    keyboard: async (hands) => {
      await hands.press('j', 'Enter', '3');
    },
    done: async () => {
      await page.getByRole('tabpanel').getByText('customer').first().waitFor();
    },
  },
  {
    name: 'filter by status', from: '/', clicks: 1, keys: 2,
    mouse: async (hands) => {
      await hands.click(button('4xx 5xx'));
    },
    keyboard: async (hands) => {
      await hands.press('/');
      await hands.type('status:4xx,5xx');
      await hands.press('Enter');
    },
    done: async () => {
      await expect.poll(() => rows().allTextContents()).toEqual([expect.stringContaining('/missing')]);
    },
  },
  {
    name: 'replay with an edit', from: '/?q=host:shop.test+-is:replay', clicks: 4, keys: 12,
    mouse: async (hands) => {
      await hands.click(row('/orders'));
      await hands.click(button('Edit and resend'));
      await hands.click(dialog().getByLabel('Header fields'));
      await hands.type('\nX-Edited: yes');
      await hands.click(dialog().getByRole('button', { name: 'Send', exact: true }));
    },
    keyboard: async (hands) => {
      await hands.press('j', 'e');
      await dialog().getByLabel('Header fields').waitFor();
      await hands.tabTo(dialog().getByLabel('Header fields'));
      await hands.press('Control+End');
      await hands.type('\nX-Edited: yes');
      await hands.press('Control+Enter');
    },
    done: async (turn) => {
      await expect.poll(async () => (await world.api<{ count: number }>('/flows/count?query=is:replay+req.header:x-edited')).count).toBe(turn);
    },
  },
  {
    name: 'add a rule that changes a header', from: '/?q=host:shop.test', clicks: 6, keys: 12,
    mouse: async (hands) => {
      await hands.click(row('/orders'));
      await hands.click(button('New rule ▾'));
      await hands.click(menu('Rewrite a header…'));
      await hands.click(dialog().getByLabel('Name', { exact: true }).first());
      await hands.type('x-added');
      await hands.click(dialog().getByLabel('Value'));
      await hands.type('1');
      await hands.click(button('Add rule'));
    },
    keyboard: async (hands) => {
      await hands.press('j');
      await hands.palette('rewrite a header');
      await dialog().getByLabel('Value').waitFor();
      await hands.tabTo(dialog().getByLabel('Name', { exact: true }).first());
      await hands.type('x-added');
      await hands.press('Tab');
      await hands.type('1');
      await hands.press('Enter');
    },
    done: async (turn) => {
      await expect.poll(rules).toBe(1 + turn);
    },
  },
  {
    name: 'hold and release a request', from: '/', clicks: 1, keys: 3,
    prepare: async () => {
      held = world.send('/held');
    },
    mouse: async (hands) => {
      await hands.click(button('Continue'));
    },
    keyboard: async (hands) => {
      await hands.press('g', 'a');
      await button('Continue').or(button('Continue (a)')).first().waitFor();
      await hands.press('a');
    },
    done: async () => {
      expect(await held).toBeGreaterThanOrEqual(200);
    },
  },
  {
    name: 'block a host', from: '/?q=host:shop.test', clicks: 4, keys: 12,
    mouse: async (hands) => {
      await hands.click(row('/orders'));
      await hands.click(button('New rule ▾'));
      await hands.click(menu('Block…'));
      await hands.click(button('Add rule'));
    },
    keyboard: async (hands) => {
      await hands.press('j');
      await hands.palette('block');
      await dialog().getByLabel('Status', { exact: true }).waitFor();
      await hands.tabTo(dialog().getByLabel('Status', { exact: true }));
      await hands.press('Enter');
    },
    done: async (turn) => {
      await expect.poll(rules).toBe(3 + turn);
      expect(await world.send('/orders', { authority: shop() })).toBe(403);
    },
  },
  {
    name: 'create a virtual key', from: '/', clicks: 3, keys: 3,
    mouse: async (hands) => {
      await hands.click(page.getByRole('link', { name: /^Keys & budgets/ }));
      await hands.click(page.getByLabel('Owner'));
      await hands.type('ada');
      await hands.click(button('Create key'));
    },
    keyboard: async (hands) => {
      await hands.palette('new virtual key');
      await expect.poll(() => page.getByLabel('Owner').evaluate((node) => node === document.activeElement)).toBe(true);
      await hands.type('ada');
      await hands.press('Enter');
    },
    done: async (turn) => {
      await page.getByText('shown only once').waitFor();
      expect((await world.api<{ keys: unknown[] }>('/keys')).keys.length).toBe(turn);
    },
  },
  {
    name: 'read a conversation', from: '/', clicks: 2, keys: 4,
    mouse: async (hands) => {
      await hands.click(page.getByRole('link', { name: /^Conversations/ }));
      await hands.click(page.getByText('hello, model').first());
    },
    keyboard: async (hands) => {
      await hands.press('g', 'v');
      await page.getByText('hello, model').first().waitFor();
      await hands.press('j', 'Enter');
    },
    done: async () => {
      await page.getByText('I look around.').first().waitFor();
    },
  },
  {
    name: 'export as HAR', from: '/', clicks: 2, keys: 2,
    mouse: async (hands) => {
      const saved = page.waitForEvent('download');
      await hands.click(button('Export ▾'));
      await hands.click(page.getByRole('menuitem', { name: /^HAR/ }));
      exported = readFileSync(await (await saved).path(), 'utf8');
    },
    keyboard: async (hands) => {
      const saved = page.waitForEvent('download');
      await hands.palette('export har');
      exported = readFileSync(await (await saved).path(), 'utf8');
    },
    done: async () => {
      expect((JSON.parse(exported) as { log: { entries: unknown[] } }).log.entries.length).toBeGreaterThan(3);
      exported = '';
    },
  },
];
let exported = '';
let held: Promise<number>;

it.each(tasks)('$name', async ({ name, from, clicks, keys, prepare, mouse, keyboard, done }) => {
  const spent: Hands[] = [];
  for (const [i, act] of [mouse, keyboard].entries()) {
    if (i === 0 && name === tasks[0]!.name) await traffic();
    await prepare?.();
    await page.goto(`http://${world.admin}${from}`);
    await page.getByRole('heading', { level: 1 }).waitFor({ state: 'attached' });
    await rows().first().waitFor();
    const hands = new Hands();
    spent.push(hands);
    await act(hands);
    await done(i + 1);
    table[name] = { ...table[name], ...(i === 0 ? { clicks: hands.clicks, 'typed by mouse': hands.typed, 'seconds by mouse': hands.seconds } : { keys: hands.keys, 'typed by keyboard': hands.typed, 'seconds by keyboard': hands.seconds }) };
  }
  // Neither may grow; by keyboard, no click.
  expect([spent[0]!.clicks, spent[0]!.keys, spent[1]!.clicks]).toEqual([clicks, 0, 0]);
  expect(spent[1]!.keys).toBeLessThanOrEqual(keys);
});

async function traffic() {
  await world.send('/orders');
  await world.send('/missing');
  await world.send('/orders', { authority: shop() });
  const asked = { model: 'claude-sonnet-4-5', messages: [{ role: 'user', content: 'hello, model' }] };
  await world.send('/v1/messages', { method: 'POST', headers: { 'content-type': 'application/json', 'anthropic-version': '2023-06-01' }, body: JSON.stringify(asked) });
  await world.recorded(4);
}
