// Keyboard navigation: Tab reaches everything on every page, no focus traps, and dialogs restore the focus.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { World } from './world';

let world: World;
let page: Page;

beforeAll(async () => {
  world = await World.start();
  for (const path of ['/orders', '/missing', '/picture.png']) await world.send(path);
  const asked = { model: 'claude-sonnet-4-5', messages: [{ role: 'user', content: 'hello' }] };
  await world.send('/v1/messages', { method: 'POST', headers: { 'content-type': 'application/json', 'anthropic-version': '2023-06-01' }, body: JSON.stringify(asked) });
  await world.recorded(4);
  page = await world.page('/');
});

afterAll(async () => {
  await world?.stop();
});

interface Stop {
  what: string;
  name: string;
  seen: boolean;
  marked: boolean;
}

/** The focused element (through shadow roots): name, visibility, and whether the focus is indicated. */
function focused(): Stop {
  let e = document.activeElement as HTMLElement | null;
  while (e?.shadowRoot?.activeElement) e = e.shadowRoot.activeElement as HTMLElement;
  if (!e || e === document.body) return { what: 'body', name: '', seen: true, marked: true };
  const labels = [...((e as HTMLInputElement).labels ?? [])].map((l) => l.textContent ?? '');
  const name = ([e.ariaLabel, ...labels, e.getAttribute('aria-labelledby') ? 'labelled' : '', e.title, e.textContent].find((n) => n?.trim()) ?? '').replace(/ \(g \w\)$/, '');
  const box = e.getBoundingClientRect();
  const style = getComputedStyle(e);
  // A field may be outlined by its container.
  const around = e.closest('.filter, .cm-editor');
  const outlined = (s: CSSStyleDeclaration) => s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0;
  return {
    what: `${e.tagName} ${e.className}`.slice(0, 60), name: name.trim().slice(0, 40),
    seen: box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
    marked: outlined(style) || (around !== null && outlined(getComputedStyle(around))),
  };
}

describe.each([1280, 390])('%i pixels wide', (width) => {
  it.each(['/', '/conversations', '/approvals', '/rules', '/privacy', '/media', '/overview', '/settings', '/keys', '/compose', '/intercept'])('%s', async (path) => {
    await page.setViewportSize({ width, height: 800 });
    await page.goto(`http://${world.admin}${path}`);
    await page.getByRole('heading', { level: 1 }).waitFor({ state: 'attached' });
    if (/rules|privacy/.test(path)) {
      const editor = page.getByRole('textbox', { name: /^(Rules|Policy)$/ });
      await expect.poll(() => editor.evaluate((n) => (n as HTMLElement).isContentEditable), { timeout: 15_000 }).toBe(true);
    }
    await expect.poll(() => page.locator('main :is(button, input)').count()).toBeGreaterThan(0);
    await page.locator('body').evaluate((b) => { b.tabIndex = -1; b.focus(); b.removeAttribute('tabindex'); });
    const stops: Stop[] = [];
    for (let i = 0; i < 250; i += 1) {
      await page.keyboard.press('Tab');
      let stop = await page.evaluate(focused);
      // The editor draws its outline a moment later.
      for (let n = 0; n < 20 && !stop.marked; n += 1) {
        await page.waitForTimeout(20);
        stop = await page.evaluate(focused);
      }
      // After the last element the focus leaves the page and wraps around.
      if (stop.what === 'body') break;
      stops.push(stop);
    }
    expect(stops.length).toBeGreaterThan(10);
    expect(stops.length).toBeLessThan(250);
    expect(stops[0]?.name).toBe('Skip to the page');
    expect(stops.slice(1, 12).map((s) => s.name.replace(/\s*\d+$/, ''))).toEqual(['Traffic', 'Intercept', 'Compose', 'Conversations', 'Approvals', 'Rules', 'Privacy', 'Keys & budgets', 'Media', 'Overview', 'Settings']);
    expect(stops.filter((s) => !s.name), 'without a name').toEqual([]);
    expect(stops.filter((s) => !s.seen), 'out of sight').toEqual([]);
    expect(stops.filter((s) => !s.marked), 'not marked').toEqual([]);
  }, 60_000);
});

describe('the focus comes back', () => {
  const active = () => page.evaluate(() => document.activeElement?.textContent?.trim() ?? '');

  beforeAll(async () => {
    await page.setViewportSize({ width: 1280, height: 800 });
    await page.goto(`http://${world.admin}/?q=path:/orders`);
    await page.locator('.drawn .line[data-id]').first().click();
    await page.getByRole('tabpanel').waitFor();
  });

  it.each([['Edit and resend', 'Edit and resend']])('to “%s” from its dialog', async (button, title) => {
    const from = page.getByRole('button', { name: button, exact: true });
    await from.focus();
    await page.keyboard.press('Enter');
    await page.getByRole('dialog', { name: title }).waitFor();
    expect(await page.evaluate(() => document.querySelector('dialog')?.contains(document.activeElement))).toBe(true);
    await page.keyboard.press('Escape');
    await expect.poll(() => page.getByRole('dialog').count()).toBe(0);
    expect(await active()).toBe(button);
  });

  it('to the previous element after the help and the palette', async () => {
    const from = page.getByRole('button', { name: 'Replay', exact: true });
    for (const [key, title] of [['?', 'Help'], ['Control+k', 'Command palette']] as const) {
      await from.focus();
      await page.keyboard.press(key);
      await page.getByRole('dialog', { name: title }).waitFor();
      await page.keyboard.press('Escape');
      await expect.poll(() => page.getByRole('dialog').count()).toBe(0);
      expect(await active(), title).toBe('Replay');
    }
  });

  it('to the menu of views, after a view was saved', async () => {
    await page.getByRole('button', { name: /^Views/ }).focus();
    await page.keyboard.press('Enter');
    await expect.poll(active).toBe('Save this view…');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog', { name: 'Save this view' }).waitFor();
    await page.keyboard.type('orders');
    await page.keyboard.press('Enter');
    await expect.poll(() => page.getByRole('dialog').count()).toBe(0);
    expect(await active()).toContain('Views');
  });

  it('to the rows, when a flow is closed', async () => {
    await page.getByRole('tab', { name: 'Request' }).focus();
    await page.keyboard.press('Escape');
    await expect.poll(() => page.locator('.pane').count()).toBe(0);
    expect(await page.evaluate(() => document.activeElement?.className)).toContain('scroller');
  });

  it('and follows the tabs that arrow keys select', async () => {
    await page.keyboard.press('Enter');
    await page.getByRole('tab', { name: 'Overview' }).focus();
    await page.keyboard.press('ArrowRight');
    await expect.poll(active).toContain('Request');
    expect(await page.evaluate(() => document.activeElement?.getAttribute('aria-selected'))).toBe('true');
  });
});

it('the selection and new flows are announced to screen readers', async () => {
  await page.goto(`http://${world.admin}/`);
  await page.locator('.drawn .line[data-id]').first().waitFor();
  await page.keyboard.press('j');
  await expect.poll(() => page.getByRole('status', { name: 'Selected flow' }).textContent()).toMatch(/^POST 200 .*\/v1\/messages, row 1 of 4$/);
  await page.keyboard.press('p');
  await world.send('/while-paused');
  await expect.poll(() => page.getByRole('status', { name: 'New flows' }).textContent()).toContain('1 new');
});

describe('motion', () => {
  /** The longest duration in milliseconds that any style sheet of the page names. */
  const longest = () => page.evaluate(() => {
    const styles = (rules: CSSRuleList): CSSStyleRule[] => [...rules].flatMap((r) => (r instanceof CSSStyleRule ? [r] : r instanceof CSSMediaRule ? styles(r.cssRules) : []));
    const millis = (text: string) => Math.max(0, ...text.split(',').map((t) => parseFloat(t) * (t.trim().endsWith('ms') ? 1 : 1000)).filter((n) => !Number.isNaN(n)));
    const rules = [...document.styleSheets].flatMap((s) => styles(s.cssRules));
    return { rules: rules.length, longest: Math.max(...rules.flatMap((r) => [millis(r.style.animationDuration), millis(r.style.transitionDuration)])), endless: rules.filter((r) => r.style.animationIterationCount === 'infinite').length };
  });
  const watched = async () => {
    await page.evaluate(() => {
      const seen: number[] = [];
      (window as unknown as { moved: number[] }).moved = seen;
      document.addEventListener('animationstart', (e) => seen.push(...(e.target as Element).getAnimations().map((a) => Number(a.effect?.getTiming().duration ?? 0))), true);
    });
    await page.keyboard.press('Escape');
    await page.locator('.drawn .line[data-id]').nth(1).click();
    await page.getByRole('tabpanel').waitFor();
    await page.waitForTimeout(1200);
    await world.send('/alone');
    await page.getByText('/alone').first().waitFor();
    await page.keyboard.press('y');
    await page.getByText('Copied as curl').waitFor();
    await page.waitForTimeout(300);
    return page.evaluate(() => (window as unknown as { moved: number[] }).moved);
  };

  it('shows what opens and what arrives, within 200 milliseconds', async () => {
    await page.goto(`http://${world.admin}/`);
    await page.locator('.drawn .line[data-id]').nth(1).waitFor();
    const { rules, longest: most, endless } = await longest();
    expect(rules).toBeGreaterThan(100);
    expect([most <= 200, endless]).toEqual([true, 0]);
    const moved = await watched();
    // The pane, the row and the notice.
    expect(moved.length).toBeGreaterThanOrEqual(3);
    expect(Math.max(...moved)).toBeLessThanOrEqual(200);
  });

  it('is left out under load: rows that arrive together are not marked', async () => {
    await page.keyboard.press('Escape');
    await page.evaluate(() => ((window as unknown as { moved: number[] }).moved.length = 0));
    for (let i = 0; i < 12; i += 1) await world.send(`/many/${i}`);
    await page.getByText('/many/11').first().waitFor();
    expect(await page.evaluate(() => (window as unknown as { moved: number[] }).moved.length)).toBeLessThanOrEqual(1);
  });

  it('is left out for those who ask for less of it', async () => {
    await page.emulateMedia({ reducedMotion: 'reduce' });
    await page.reload();
    await page.locator('.drawn .line[data-id]').nth(1).waitFor();
    expect(await watched()).toEqual([]);
    const moving = await page.evaluate(() => document.getAnimations().length + [...document.querySelectorAll('*')].filter((e) => parseFloat(getComputedStyle(e).transitionDuration) > 0).length);
    expect(moving).toBe(0);
    await page.emulateMedia({ reducedMotion: null });
  });
});

it('no external requests and no console errors', () => {
  expect([world.complaints, world.strays]).toEqual([[], []]);
});
