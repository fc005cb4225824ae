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
  await world.webSocket();
  await world.recorded(6);
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

  it.each(PAGES)('%s has no serious violation, and fits', async (path) => {
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

  it('dialogs have none', async () => {
    await page.goto(`http://${world.admin}/`);
    await page.locator('.drawn .line[data-id]').first().waitFor();
    for (const [keys, name] of [[['?'], 'Help'], [['Control+k'], 'Command palette'], [['j', 'e'], 'Edit and resend'], [['d'], 'Delete this flow?']] as const) {
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
  for (let i = 0; i < 28; i += 1) {
    await page.keyboard.press('Tab');
    seen.push(await page.evaluate(() => (document.activeElement as HTMLSelectElement | null)?.labels?.[0]?.textContent ?? document.activeElement?.textContent?.trim() ?? ''));
  }
  const places = ['Traffic', 'Intercept', 'Compose', 'Conversations', 'Approvals', 'Rules', 'Privacy', 'Keys & budgets', 'Media', 'Overview', 'Settings'];
  expect(seen.slice(0, places.length)).toEqual(places);
  expect(seen).toContain('TLS interception');
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement!).outlineStyle);
  expect(outline).not.toBe('none');
  await page.context().close();
});
