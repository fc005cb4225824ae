// Layout shifts (as measured by the browser) while pages load, flows arrive, and one is open.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { World } from './world';

let world: World;

beforeAll(async () => {
  world = await World.start();
  for (const path of ['/orders', '/missing', '/cut', '/picture.png', '/text']) await world.send(path);
  const asked = { model: 'claude-sonnet-4-5', messages: [{ role: 'user', content: 'Mail me at anna@firm.com' }] };
  await world.send('/v1/messages', { method: 'POST', headers: { 'content-type': 'application/json', 'anthropic-version': '2023-06-01' }, body: JSON.stringify(asked) });
  await world.recorded(6);
});

afterAll(async () => {
  await world?.stop();
});

/** Web Vitals call less than 0.1 good; 0.02 is not noticeable. */
const MOST = 0.02;

async function watched(path: string, width: number, prepare?: (page: Page) => Promise<unknown>): Promise<Page> {
  const page = await world.page('/overview', { viewport: { width, height: 800 } });
  await prepare?.(page);
  await page.addInitScript(() => {
    const seen: { value: number; what: string[] }[] = [];
    (window as unknown as { shifts: typeof seen }).shifts = seen;
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries() as unknown as { value: number; hadRecentInput: boolean; sources: { node: Node | null }[] }[]) {
        // Text moving between rows of the live table is not a layout shift.
        const living = entry.sources.every((s) => (s.node instanceof Element ? s.node : s.node?.parentElement)?.closest('.drawn'));
        if (!entry.hadRecentInput && !living) seen.push({ value: entry.value, what: entry.sources.map((s) => s.node?.textContent?.slice(0, 40) ?? '') });
      }
    }).observe({ type: 'layout-shift', buffered: true });
  });
  await page.goto(`http://${world.admin}${path}`);
  return page;
}

async function shifted(page: Page): Promise<{ sum: number; of: unknown[] }> {
  const of = await page.evaluate(() => (window as unknown as { shifts: { value: number; what: string[] }[] }).shifts);
  return { sum: of.reduce((n, s) => n + s.value, 0), of };
}

describe.each([1280, 390])('%i pixels wide', (width) => {
  it.each(['/', '/conversations', '/approvals', '/rules', '/privacy', '/media', '/overview', '/settings', '/compose', '/intercept', '/keys'])('%s does not shift while it loads', async (path) => {
    const page = await watched(path, width);
    await page.getByRole('heading', { level: 1 }).waitFor({ state: 'attached' });
    await page.waitForTimeout(1800);
    const { sum, of } = await shifted(page);
    expect(sum, JSON.stringify(of)).toBeLessThan(MOST);
    await page.context().close();
  });

  it('/rules does not shift if it is known late how commands begin', async () => {
    const page = await watched('/rules', width, (page) => page.route('**/api/v1/setup', async (route) => {
      await new Promise((done) => setTimeout(done, 700));
      await route.continue();
    }));
    await page.getByText(`interflow --data-dir ${world.home} run --rules FILE`).waitFor();
    await page.waitForTimeout(300);
    const { sum, of } = await shifted(page);
    expect(sum, JSON.stringify(of)).toBeLessThan(MOST);
    await page.context().close();
  });

  it('the table and an open flow do not shift while flows arrive', async () => {
    const page = await watched('/', width);
    await page.locator('.drawn .line[data-id]').first().waitFor();
    await page.keyboard.press('j');
    await page.keyboard.press('Enter');
    await page.getByRole('tabpanel').waitFor();
    // Shifts within half a second of a key press are expected, and excluded by the browser.
    await page.waitForTimeout(700);
    for (let i = 0; i < 40; i += 1) await world.send(`/orders?${i}`);
    await page.waitForTimeout(800);
    const { sum, of } = await shifted(page);
    expect(sum, JSON.stringify(of)).toBeLessThan(MOST);
    await page.context().close();
  });
});
