// Every key binding of the help; a new binding without a check here fails.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { BINDINGS, OTHER_PAGE_BINDINGS, type Action } from '../src/lib/keys';
import { World } from './world';

let world: World;
let page: Page;

beforeAll(async () => {
  world = await World.start();
  for (let i = 0; i < 4; i += 1) await world.send(`/one/${i}`);
  await Promise.all([world.webSocket()]);
  await world.send('/v1/messages', {
    method: 'POST', headers: { 'content-type': 'application/json', 'anthropic-version': '2023-06-01' },
    body: JSON.stringify({ model: 'claude-sonnet-4-5', messages: [{ role: 'user', content: 'a@b.com' }] }),
  });
  await world.recorded(6);
  page = await world.page('/');
  // Each flow opens on the first tab that it would for a new user.
  await page.addInitScript(() => localStorage.removeItem('flow.tab'));
});

afterAll(async () => {
  await world?.stop();
});

const rows = () => page.locator('.drawn .line[data-id]');
const selected = () => page.locator('.drawn .line[aria-selected=true]').getAttribute('aria-rowindex');
const shownTab = () => page.locator('.pane [role=tab][aria-selected=true]').textContent();
const query = () => new URL(page.url()).searchParams.get('q');
const clipboard = () => page.evaluate(() => navigator.clipboard.readText());
const dialog = (name: string | RegExp) => page.getByRole('dialog', { name });
/** Playwright's name of a key. */
const named = (key: string) => (key === ' ' ? 'Space' : key === 'Shift+ ' ? 'Shift+Space' : key.replace('Ctrl+', 'Control+'));

/** Presses a key, or one after the other. */
async function press(key: string) {
  for (const one of key.startsWith('g ') ? key.split(' ') : [key]) await page.keyboard.press(one);
}

async function at(q = '', keys: string[] = []) {
  await page.goto(`http://${world.admin}/${q ? `?q=${encodeURIComponent(q)}` : ''}`);
  await rows().first().waitFor();
  for (const key of keys) await press(key);
}

/** Opens a flow that has this tab. */
async function opened(q: string, keys: string[] = []) {
  await at(q, ['j', 'Enter']);
  await page.getByRole('tab', { name: 'Overview' }).waitFor();
  for (const key of keys) await press(key);
}

const goes = (path: string) => async (key: string) => {
  await at();
  await press(key);
  await expect.poll(() => new URL(page.url()).pathname).toBe(path);
};
const turnsTo = (tab: RegExp, q: string) => async (key: string) => {
  await opened(q, ['ArrowRight', key]);
  await expect.poll(shownTab).toMatch(tab);
};
const selects = (before: string[], index: string) => async (key: string) => {
  await at('path:/one', before);
  await press(key);
  await expect.poll(selected).toBe(index);
};

const PROOFS: Record<Action, (key: string) => Promise<void>> = {
  next: selects(['j'], '3'),
  previous: selects(['j', 'j', 'j'], '3'),
  pageDown: selects(['j'], '5'),
  pageUp: selects(['G'], '2'),
  first: selects(['j', 'j', 'j'], '2'),
  last: selects(['j'], '5'),
  open: async (key) => {
    await at('', ['j', key]);
    await page.getByRole('tabpanel').waitFor();
  },
  close: async (key) => {
    await opened('path:/one', [key]);
    await expect.poll(() => page.locator('.pane').count()).toBe(0);
  },
  nextTab: async (key) => {
    await opened('path:/one', [key]);
    await expect.poll(shownTab).toBe('Request');
  },
  previousTab: async (key) => {
    await opened('path:/one', [key]);
    await expect.poll(shownTab).toBe('Overview');
  },
  tab1: turnsTo(/Overview/, 'path:/one'),
  tab2: turnsTo(/Request/, 'path:/one'),
  tab3: turnsTo(/Response/, 'path:/one'),
  tab4: turnsTo(/Messages/, 'is:websocket'),
  tab5: turnsTo(/Rules/, 'path:/one'),
  tab6: turnsTo(/Privacy/, 'path:/v1/messages'),
  // Plain HTTP has no TLS tab: the key does nothing.
  tab7: turnsTo(/Request/, 'path:/one'),
  tab8: turnsTo(/Raw/, 'path:/one'),
  exchange: turnsTo(/Exchange/, 'path:/one'),
  palette: async (key) => {
    await at('', [key]);
    await dialog('Command palette').waitFor();
  },
  filter: async (key) => {
    await at('', [key]);
    await expect.poll(() => page.evaluate(() => document.activeElement?.getAttribute('role'))).toBe('combobox');
  },
  filterFor: async (key) => {
    await at('', ['j', key]);
    await expect.poll(query).toBe('host:127.0.0.1');
  },
  filterOut: async (key) => {
    await at('', ['j', key]);
    await expect.poll(query).toBe('-host:127.0.0.1');
  },
  pause: async (key) => {
    await at('', [key]);
    await page.getByText('Paused').waitFor();
    await press(key);
    await page.getByText('Live', { exact: true }).waitFor();
  },
  choose: async (key) => {
    await at('', ['j', key]);
    await expect.poll(() => page.locator('footer').textContent()).toContain('1 selected');
  },
  compare: async (key) => {
    await at('path:/one', ['j', 'x', 'j', 'x', key]);
    await dialog('Compare').waitFor();
  },
  menu: async (key) => {
    await at('path:/one', ['j', key]);
    await page.getByRole('menuitem', { name: 'New rule' }).waitFor();
  },
  replay: async (key) => {
    await at('path:/one/3', ['j', key]);
    await expect.poll(() => rows().count()).toBe(2);
  },
  edit: async (key) => {
    await at('', ['j', key]);
    await dialog('Edit and resend').waitFor();
  },
  copy: async (key) => {
    await at('path:/one/2', ['j', key]);
    await expect.poll(clipboard).toMatch(/^curl .*\/one\/2/s);
  },
  tag: async (key) => {
    await at('', ['j', key]);
    await expect.poll(() => page.evaluate(() => document.activeElement?.getAttribute('aria-label'))).toBe('New tag');
  },
  star: async (key) => {
    await at('path:/one/1', ['j', key]);
    await expect.poll(() => rows().first().locator('.badge').allTextContents()).toContain('★');
    await press(key);
    await expect.poll(() => rows().first().locator('.badge').allTextContents()).not.toContain('★');
  },
  delete: async (key) => {
    await world.send(`/gone-with/${key}`);
    await world.recorded(1, `path:/gone-with/${key}`);
    await at(`path:/gone-with/${key}`, ['j', key]);
    await expect.poll(() => rows().count()).toBe(0);
    await page.getByRole('button', { name: 'Dismiss' }).last().click();
    await expect.poll(async () => (await world.api<{ count: number }>(`/flows/count?query=path:/gone-with/${key}`)).count).toBe(0);
  },
  undo: async (key) => {
    await at('path:/one/1', ['j', 'd']);
    await expect.poll(() => rows().count()).toBe(0);
    await press(key);
    await expect.poll(() => rows().count()).toBe(1);
  },
  help: async (key) => {
    await at('', [key]);
    await dialog('Help').waitFor();
  },
  theme: async (key) => {
    await at('', [key]);
    expect(await page.evaluate(() => document.documentElement.dataset['theme'])).toBe('light');
    await press(key);
    await press(key);
  },
  goTraffic: goes('/'),
  goConversations: goes('/conversations'),
  goApprovals: goes('/approvals'),
  goRules: goes('/rules'),
  goPrivacy: goes('/privacy'),
  goMedia: goes('/media'),
  goOverview: goes('/overview'),
  goSettings: goes('/settings'),
  goCompose: goes('/compose'),
  goIntercept: goes('/intercept'),
  goKeys: goes('/keys'),
};

describe('each key does what the help says', () => {
  it.each(BINDINGS.flatMap((b) => b.keys.map((key) => [named(key), b.doc, b.action] as const)))('%s: %s', async (key, _, action) => {
    await PROOFS[action](key);
  });
});

it('the help lists them all, including those of other pages', async () => {
  await at('', ['?']);
  const text = (await dialog('Help').textContent()) ?? '';
  for (const { doc } of [...BINDINGS, ...OTHER_PAGE_BINDINGS]) expect(text).toContain(doc);
  await page.keyboard.press('?');
  await expect.poll(() => dialog('Help').count()).toBe(0);
});

it('keys of Conversations move, expand, filter and go back', async () => {
  await page.goto(`http://${world.admin}/conversations`);
  await page.locator('.entry').first().waitFor();
  await page.keyboard.press('j');
  const unfold = page.getByRole('button', { name: 'Expand all' });
  await unfold.waitFor();
  await page.keyboard.press('k');
  await page.keyboard.press('e');
  await expect.poll(() => unfold.getAttribute('aria-pressed')).toBe('true');
  await page.keyboard.press('Escape');
  await expect.poll(() => new URL(page.url()).searchParams.get('c')).toBeNull();
  await page.keyboard.press('/');
  await expect.poll(() => page.evaluate(() => document.activeElement?.getAttribute('aria-label'))).toBe('Filter conversations');
});

it('keys of Approvals decide the current item', async () => {
  await page.goto(`http://${world.admin}/approvals`);
  await page.getByRole('button', { name: 'ask', exact: true }).click();
  await page.getByText('Ask when no rule decides').waitFor();
  const card = page.getByRole('article');
  for (const [host, key, status] of [['one', 'a', 502], ['two', 'A', 502], ['three', 'd', 403], ['four', 'D', 403]] as const) {
    const answer = world.send('/held', { authority: `${host}.invalid` });
    await expect.poll(() => card.filter({ hasText: `${host}.invalid` }).count(), { timeout: 8000 }).toBe(1);
    await press(key);
    if (key === key.toUpperCase()) {
      // Nothing is decided before scope and duration are confirmed.
      await page.getByRole('form', { name: 'Always' }).getByText(key === 'A' ? /^Allows all requests to/ : /^Denies all requests to/).waitFor();
      await page.getByRole('button', { name: key === 'A' ? 'Allow for 1 hour' : 'Deny for 1 hour' }).click();
    }
    expect(await answer, key).toBe(status);
  }
  // A rule applies to the next request; a single decision does not.
  expect(await world.send('/held', { authority: 'two.invalid' })).toBe(502);
  expect(await world.send('/held', { authority: 'four.invalid' })).toBe(403);
  const [five, six] = ['five', 'six'].map((host) => world.send('/held', { authority: `${host}.invalid` }));
  await expect.poll(() => card.count(), { timeout: 8000 }).toBe(2);
  const second = (await card.nth(1).textContent()) ?? '';
  await page.keyboard.press('j');
  await page.keyboard.press('d');
  expect(await (second.includes('five') ? five : six)).toBe(403);
  await page.keyboard.press('k');
  await page.keyboard.press('a');
  expect(await (second.includes('five') ? six : five)).toBe(502);
}, 60_000);

it('keys of Approvals decide nothing behind a dialog, and a held one decides once', async () => {
  await page.goto(`http://${world.admin}/approvals`);
  await page.getByRole('button', { name: 'ask', exact: true }).click();
  await page.getByText('Ask when no rule decides').waitFor();
  const card = page.getByRole('article');
  const answers = ['seven', 'eight', 'nine'].map((host) => world.send('/held', { authority: `${host}.invalid` }));
  await expect.poll(() => card.count(), { timeout: 8000 }).toBe(3);
  await page.keyboard.press('?');
  await dialog('Help').waitFor();
  for (const key of ['a', 'd']) await page.keyboard.press(key);
  await page.keyboard.press('Escape');
  await expect.poll(() => dialog('Help').count()).toBe(0);
  expect(await card.count()).toBe(3);
  for (let i = 0; i < 3; i += 1) await page.keyboard.down('d');
  expect(await card.count()).toBe(2);
  await page.keyboard.up('d');
  for (let i = 0; i < 2; i += 1) await page.keyboard.press('d');
  expect(await Promise.all(answers)).toEqual([403, 403, 403]);
}, 60_000);

it('a held key selects, pauses and deletes once', async () => {
  await at('path:/one', ['j']);
  const hold = async (key: string) => {
    for (let i = 0; i < 4; i += 1) await page.keyboard.down(key);
    await page.keyboard.up(key);
  };
  await hold('x');
  await page.locator('footer').getByText('1 selected').waitFor();
  await page.keyboard.press('x');
  await hold('p');
  expect(await page.getByRole('button', { name: 'Paused' }).getAttribute('aria-pressed')).toBe('true');
  await page.keyboard.press('p');
  const before = await rows().count();
  await hold('d');
  await expect.poll(() => rows().count()).toBe(before - 1);
  await hold('u');
  await expect.poll(() => rows().count()).toBe(before);
  // What is repeated is to move.
  await page.keyboard.press('Home');
  await hold('j');
  await expect.poll(selected).toBe(String(Math.min(4, before - 1) + 2));
});

it('no external requests and no console errors', () => {
  expect([world.complaints, world.strays]).toEqual([[], []]);
});
