// Fingers: targets of at least 40 pixels on every page, the menu of a row, and selecting without a keyboard.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { World } from './world';

let world: World;

const PHONE = { viewport: { width: 400, height: 800 }, hasTouch: true, isMobile: true };
const TABLET = { viewport: { width: 1024, height: 768 }, hasTouch: true, isMobile: true };
/** In pixels of CSS. */
const LEAST = 40;

beforeAll(async () => {
  world = await World.start({ files: { 'rules.yaml': 'rules:\n  - name: first\n    when: path:/nowhere\n    then: block\n' } });
  for (const path of ['/orders', '/text', '/missing', '/picture.png']) await world.send(path);
  const asked = { model: 'claude-sonnet-4-5', messages: [{ role: 'user', content: 'hello' }] };
  await world.send('/v1/messages', { method: 'POST', headers: { 'content-type': 'application/json', 'anthropic-version': '2023-06-01' }, body: JSON.stringify(asked) });
  await world.recorded(5);
});

afterAll(async () => {
  await world?.stop();
});

/** Targets that are smaller; a check box has the size of its label, and links within a sentence are as high as its lines. */
function small(least: number): string[] {
  const found: string[] = [];
  for (const e of document.querySelectorAll<HTMLElement>('button, select, textarea, input, summary, a[href], [role=tab], [role=menuitem]')) {
    const target = e.matches('[type=checkbox], [type=radio]') ? (e.closest('label') ?? e) : e;
    const box = target.getBoundingClientRect();
    const style = getComputedStyle(e);
    if (box.width === 0 || style.visibility === 'hidden' || e.matches('[hidden], .sr') || e.closest('[hidden], .sr, .offscreen')) continue;
    if (e.tagName === 'A' && style.display === 'inline') continue;
    if (box.width < least - 0.5 || box.height < least - 0.5) found.push(`${Math.round(box.width)}x${Math.round(box.height)} ${e.tagName} ${e.className} ${(e.ariaLabel ?? e.textContent ?? '').trim().slice(0, 40)}`);
  }
  return found;
}

async function opened(path: string, options: typeof PHONE): Promise<Page> {
  const page = await world.page(path, options);
  await page.getByRole('heading', { level: 1 }).waitFor({ state: 'attached' });
  await expect.poll(() => page.locator('main :is(button, input)').count()).toBeGreaterThan(0);
  expect(await page.evaluate(() => matchMedia('(pointer: coarse)').matches)).toBe(true);
  await page.waitForTimeout(500);
  return page;
}

describe.each([['phone', PHONE], ['tablet', TABLET]])('targets on a %s', (_, options) => {
  it.each(['/', '/conversations', '/approvals', '/rules', '/privacy', '/media', '/overview', '/settings', '/keys', '/compose', '/intercept'])('%s', async (path) => {
    const page = await opened(path, options);
    expect(await page.evaluate(small, LEAST)).toEqual([]);
    await page.context().close();
  });

  it('of an open flow, its menus and dialogs', async () => {
    const page = await opened('/', options);
    await page.locator('.drawn .line[data-id]').filter({ hasText: '/orders' }).locator('[role=gridcell].path, [role=gridcell][data-term]').first().tap();
    await page.getByRole('tabpanel').waitFor();
    for (const tab of ['Overview', 'Request', 'Response']) {
      await page.getByRole('tab', { name: tab }).tap();
      await page.waitForTimeout(200);
      expect([tab, await page.evaluate(small, LEAST)]).toEqual([tab, []]);
    }
    await page.getByRole('button', { name: 'Copy as ▾' }).tap();
    expect(await page.evaluate(small, LEAST)).toEqual([]);
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'New rule ▾' }).tap();
    await page.getByRole('menuitem', { name: 'Rewrite a header…' }).tap();
    await page.getByRole('dialog').waitFor();
    expect(await page.evaluate(small, LEAST)).toEqual([]);
    await page.getByRole('button', { name: 'More actions and text…' }).tap();
    await page.getByLabel('Add an action').waitFor();
    expect(await page.evaluate(small, LEAST)).toEqual([]);
    await page.context().close();
  });
});

describe('on a phone', () => {
  it('a row has a menu of its own', async () => {
    const page = await opened('/', PHONE);
    await page.getByRole('button', { name: 'Menu of GET /missing' }).tap();
    await page.getByRole('menuitem', { name: 'Filter by' }).tap();
    await page.getByRole('menuitem', { name: 'Status 404' }).tap();
    await expect.poll(() => page.locator('.drawn .line[data-id]').count()).toBe(1);
    expect(await page.locator('.pane').count()).toBe(0);
    await page.context().close();
  });

  it('flows are selected by check boxes, and taps select while they are there', async () => {
    const page = await opened('/', PHONE);
    const rows = page.locator('.drawn .line[data-id]');
    expect(await page.getByRole('checkbox').count()).toBe(0);
    await page.getByRole('button', { name: 'Select', exact: true }).tap();
    await rows.nth(0).getByRole('checkbox').tap();
    await rows.nth(2).locator('.path').tap();
    const bar = page.getByRole('toolbar', { name: 'Selected flows' });
    await expect.poll(() => bar.textContent()).toContain('2 selected');
    expect(await page.locator('.pane').count()).toBe(0);
    expect(await page.evaluate(small, LEAST)).toEqual([]);
    await page.getByRole('button', { name: 'Done', exact: true }).tap();
    await expect.poll(() => bar.count()).toBe(0);
    await rows.nth(0).locator('.path').tap();
    await page.getByRole('tabpanel').waitFor();
    expect(world.complaints).toEqual([]);
    await page.context().close();
  });
});
