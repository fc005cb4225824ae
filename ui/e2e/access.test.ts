// Accessibility checks (axe) of every page, tab and dialog, light and dark, wide and narrow.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PAGES, violations } from './axe';
import { World } from './world';

const ORDER = JSON.stringify({ items: [1, { name: 'lamp' }] });

let world: World;

beforeAll(async () => {
  world = await World.start();
  await world.send('/orders');
  await world.send('/missing');
  await world.send('/cut');
  await world.send('/echo', { method: 'POST', headers: { 'content-type': 'application/json', 'x-test': 'a' }, body: ORDER });
  const asked = { model: 'claude-sonnet-4-5', messages: [{ role: 'user', content: 'Mail me at anna@firm.com' }] };
  await world.send('/v1/messages', { method: 'POST', headers: { 'content-type': 'application/json', 'anthropic-version': '2023-06-01' }, body: JSON.stringify(asked) });
  const second = { ...asked, messages: [{ role: 'user', content: 'Another run of the same' }] };
  await world.send('/v1/messages', { method: 'POST', headers: { 'content-type': 'application/json', 'anthropic-version': '2023-06-01' }, body: JSON.stringify(second) });
  await world.webSocket();
  await world.recorded(7);
});

afterAll(async () => {
  await world?.stop();
});

const WIDTHS = [400, 768, 1280, 1920];
const SCREENS = (['light', 'dark'] as const).flatMap((scheme) => WIDTHS.map((width) => [scheme, width] as const));

describe.each(SCREENS)('every page in %s, %i pixels wide', (colorScheme, width) => {
  let page: Page;
  beforeAll(async () => {
    page = await world.page('/', { colorScheme, viewport: { width, height: 860 } });
  });
  afterAll(async () => {
    await page?.context().close();
  });

  it.each(PAGES)('%s is clean, and fits', async (path) => {
    await page.goto(`http://${world.admin}${path}`);
    await page.waitForTimeout(600);
    expect(await violations(page)).toEqual([]);
    const over = await page.evaluate(() => {
      const shown = document.querySelector('.shown');
      return Math.max(document.documentElement.scrollWidth - innerWidth, shown ? shown.scrollWidth - shown.clientWidth : 0);
    });
    expect(over).toBeLessThanOrEqual(0);
  });
});

describe.each([['light', 1440], ['dark', 1440], ['light', 390], ['dark', 390]] as const)('in %s, %i pixels wide', (colorScheme, width) => {
  let page: Page;
  beforeAll(async () => {
    page = await world.page('/', { colorScheme, viewport: { width, height: 860 } });
  });
  afterAll(async () => {
    await page?.context().close();
  });

  it('an open flow has none on any tab', async () => {
    for (const query of ['path:/echo', 'is:websocket', 'path:/cut', 'path:/v1/messages']) {
      await page.goto(`http://${world.admin}/?q=${encodeURIComponent(query)}`);
      await page.locator('.drawn .line[data-id]').first().click();
      await page.getByRole('tabpanel').waitFor();
      for (const tab of await page.getByRole('tab').all()) {
        await tab.click();
        await page.waitForTimeout(150);
        expect(await violations(page), `${query} ${await tab.textContent()}`).toEqual([]);
      }
    }
  }, 180_000);

  it('palette and approvals have no text below 13 pixels', async () => {
    const small = () => page.evaluate(() => {
      const root = document.querySelector('dialog[open]') ?? document.querySelector('main')!;
      const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
      const found: string[] = [];
      while (walker.nextNode()) {
        const { parentElement: parent, textContent } = walker.currentNode;
        if (textContent?.trim() && parent?.checkVisibility() && parseFloat(getComputedStyle(parent).fontSize) < 13) found.push(textContent);
      }
      return found;
    });
    await page.goto(`http://${world.admin}/approvals`);
    await page.getByRole('heading', { name: 'Rules' }).waitFor();
    expect(await small()).toEqual([]);
    await page.keyboard.press('Control+k');
    await page.getByRole('dialog', { name: 'Command palette' }).waitFor();
    expect(await small()).toEqual([]);
    await page.keyboard.press('Escape');
  });

  it('dialogs have none', async () => {
    // A WebSocket is edited in Compose.
    await page.goto(`http://${world.admin}/?q=-type:ws`);
    await page.locator('.drawn .line[data-id]').first().waitFor();
    for (const [keys, name] of [[['?'], 'Help'], [['Control+k'], 'Command palette'], [['j', 'e'], 'Edit and resend']] as const) {
      for (const key of keys) await page.keyboard.press(key);
      await page.getByRole('dialog', { name }).waitFor();
      await page.waitForTimeout(150);
      expect(await violations(page), name).toEqual([]);
      await page.keyboard.press('Escape');
    }
  });

  it('pending flows and a file conflict have none', async () => {
    const rules = join(world.home, 'rules.yaml');
    const rule = '  - name: look\n    phase: request_body\n    when: path:/held\n    then: hold\n';
    writeFileSync(rules, `rules:\n${rule}`);
    await page.goto(`http://${world.admin}/rules`);
    await page.getByRole('row', { name: /look/ }).waitFor();
    const editor = page.getByRole('textbox', { name: 'Rules', exact: true });
    await expect.poll(() => editor.evaluate((n) => (n as HTMLElement).isContentEditable), { timeout: 15_000 }).toBe(true);
    const answer = world.send('/held', { method: 'POST', headers: { 'content-type': 'text/plain' }, body: 'wait' });
    await page.getByRole('article').getByRole('button', { name: 'Edit' }).click();
    await editor.click();
    await page.keyboard.insertText('# mine');
    writeFileSync(rules, `# theirs\nrules:\n${rule}`);
    await page.getByText('This file changed on disk').waitFor();
    await page.getByText('Version on disk', { exact: true }).click();
    expect(await violations(page)).toEqual([]);
    await page.getByRole('button', { name: 'Respond' }).click();
    expect(await violations(page)).toEqual([]);
    await page.getByRole('button', { name: 'Use the version on disk' }).click();
    // An open form has one button that sends.
    await page.getByRole('article').getByRole('button', { name: 'Close' }).click();
    await page.getByRole('article').getByRole('button', { name: 'Continue' }).click();
    expect(await answer).toBe(200);
  });

  it('totals by model and by agent have none', async () => {
    await page.goto(`http://${world.admin}/conversations?view=totals`);
    await page.getByRole('rowheader', { name: 'claude-sonnet-4-5' }).waitFor();
    expect(await violations(page)).toEqual([]);
    const box = await page.getByRole('group', { name: /^Cost per day/ }).boundingBox();
    expect(box?.height).toBeGreaterThan(40);
  });

  it('a comparison of two flows, an import under way and an open menu have none', async () => {
    await page.goto(`http://${world.admin}/`);
    await page.locator('.drawn .line[data-id]').nth(2).waitFor();
    await page.locator('.scroller').focus();
    for (const key of ['j', 'x', 'j', 'x', 'c']) await page.keyboard.press(key);
    await page.getByRole('dialog', { name: 'Compare' }).getByRole('table').first().waitFor();
    expect(await violations(page), 'comparison').toEqual([]);
    await page.keyboard.press('Escape');
    await page.keyboard.press('.');
    await page.getByRole('menu').waitFor();
    expect(await violations(page), 'menu').toEqual([]);
    await page.keyboard.press('Escape');
    let done: () => void = () => undefined;
    const release = new Promise<void>((resolve) => (done = resolve));
    await page.route('**/api/v1/import*', async (route) => { await release; await route.fulfill({ json: { imported: 0, present: 0, skipped: 0, reasons: [] } }); });
    await page.getByLabel('Archives to import').setInputFiles({ name: 'slow.har', mimeType: 'application/json', buffer: Buffer.from('{}') });
    await page.getByText('Importing slow.har').waitFor();
    expect(await violations(page), 'import').toEqual([]);
    done();
    await page.getByText('0 flows were imported').waitFor();
    await page.unroute('**/api/v1/import*');
  });

  it('a composed request with its answer, and its assertions, have none', async () => {
    await page.goto(`http://${world.admin}/compose`);
    await page.getByLabel('URL', { exact: true }).fill(`http://${world.origin}/orders`);
    await page.getByText('Assertions').click();
    await page.getByRole('button', { name: 'Add an assertion' }).click();
    await page.getByRole('button', { name: 'Add an assertion' }).click();
    await page.getByLabel('Kind of assertion 2').selectOption('json');
    await page.getByLabel('Path', { exact: true }).fill('$.nothing');
    await page.getByRole('button', { name: 'Send', exact: true }).click();
    await page.getByText('1 of 2 hold').waitFor();
    expect(await violations(page)).toEqual([]);
    await page.getByRole('button', { name: 'Code…' }).click();
    await page.getByRole('dialog', { name: 'Code' }).waitFor();
    await page.waitForTimeout(150);
    expect(await violations(page), 'code').toEqual([]);
    await page.keyboard.press('Escape');
  });

  it('keys, teams and the forms that make them have none', async () => {
    await page.goto(`http://${world.admin}/keys`);
    const keys = page.locator('.card', { has: page.getByRole('heading', { name: 'Virtual keys' }) });
    await keys.getByLabel('Owner').fill(`ada ${colorScheme} ${width}`);
    await keys.getByRole('button', { name: 'Create key' }).click();
    await keys.getByRole('status').locator('code').waitFor();
    const teams = page.locator('section').filter({ has: page.getByRole('heading', { name: 'Teams and organisations', exact: true }) }).locator('form');
    await page.getByText('New team or organisation').click();
    await teams.getByLabel('Kind').selectOption('team');
    await teams.getByLabel('Name').fill(`t-${colorScheme}-${width}`);
    await teams.getByRole('button', { name: 'Create team' }).click();
    const row = page.getByRole('row', { name: new RegExp(`^t-${colorScheme}-${width} team`) });
    await row.waitFor();
    expect(await violations(page)).toEqual([]);
    // Tables scroll, the page does not.
    expect(await page.locator('.shown').evaluate((shown) => shown.scrollWidth - shown.clientWidth)).toBeLessThanOrEqual(0);
    await row.getByRole('button', { name: /^Edit/ }).click();
    await page.getByRole('dialog').waitFor();
    expect(await violations(page), 'team').toEqual([]);
    await page.keyboard.press('Escape');
    await keys.getByRole('row', { name: new RegExp(`ada ${colorScheme} ${width}`) }).getByRole('button', { name: 'Rotate' }).click();
    await page.getByRole('dialog').waitFor();
    expect(await violations(page), 'rotation').toEqual([]);
    await page.keyboard.press('Escape');
  });

  it('a rule in the builder and two conversations side by side have none', async () => {
    await page.goto(`http://${world.admin}/rules`);
    await page.getByRole('button', { name: 'New rule' }).click();
    await page.getByRole('menuitem', { name: 'Mock this response…' }).click();
    await page.getByRole('button', { name: 'More actions and text…' }).click();
    await page.getByLabel('Add an action').selectOption('set_request_header');
    expect(await violations(page), 'builder').toEqual([]);
    await page.keyboard.press('Escape');
    await page.goto(`http://${world.admin}/conversations`);
    for (const box of await page.getByRole('checkbox', { name: /for comparison$/ }).all()) await box.check();
    await page.getByRole('button', { name: /^Compare/ }).click();
    await page.getByRole('heading', { name: /compar/i }).first().waitFor();
    expect(await violations(page), 'conversations').toEqual([]);
  });

  it('a conversation has none, collapsed or expanded', async () => {
    await page.goto(`http://${world.admin}/conversations`);
    await page.getByRole('heading', { name: 'Conversations', level: 1 }).waitFor();
    await page.waitForTimeout(500);
    await page.keyboard.press('j');
    await page.waitForTimeout(500);
    expect(await violations(page)).toEqual([]);
    await page.keyboard.press('e');
    await page.waitForTimeout(200);
    expect(await violations(page)).toEqual([]);
    await page.keyboard.press('t');
    await page.getByRole('treeitem').first().click();
    await page.getByText('Open the flow').waitFor();
    expect(await violations(page)).toEqual([]);
  });
});

it('the keyboard reaches everything in reading order', async () => {
  const page = await world.page('/settings');
  await page.getByRole('heading', { name: 'Settings' }).waitFor();
  await page.waitForTimeout(300);
  const seen: string[] = [];
  for (let i = 0; i < 34; i += 1) {
    await page.keyboard.press('Tab');
    seen.push(await page.evaluate(() => (document.activeElement as HTMLSelectElement | null)?.labels?.[0]?.textContent ?? document.activeElement?.textContent?.trim() ?? ''));
  }
  const places = ['Traffic', 'Intercept', 'Compose', 'Conversations', 'Approvals', 'Rules', 'Privacy', 'Keys & budgets', 'Media', 'Overview', 'Settings'];
  expect(seen[0]).toBe('Skip to the page');
  expect(seen.slice(1, places.length + 1)).toEqual(places);
  expect(seen).toContain('TLS interception');
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement!).outlineStyle);
  expect(outline).not.toBe('none');
  await page.context().close();
});
