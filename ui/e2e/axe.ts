// Accessibility checks by axe.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { AxeResults } from 'axe-core';
import type { Page } from 'playwright-core';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Every page of the UI. */
export const PAGES = ['/', '/?q=path:/nothing', '/conversations', '/conversations?view=totals', '/approvals', '/rules', '/privacy', '/media', '/overview', '/settings', '/compose', '/keys', '/intercept', '/login', '/docs/guides/web-ui.html'];

/** Axe violations of every impact. */
export async function violations(page: Page): Promise<string[]> {
  await page.evaluate(AXE);
  // What fades in has its colours at the end only.
  await page.evaluate(() => Promise.all(document.getAnimations().filter((a) => a.effect?.getComputedTiming().endTime !== Infinity).map((a) => a.finished.catch(() => undefined))));
  const found = await page.evaluate(() => {
    const { axe } = window as unknown as { axe: { run: (o: object) => Promise<AxeResults> } };
    return axe.run({ resultTypes: ['violations'] });
  });
  return found.violations
    .flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.html.slice(0, 160)} ${(n.any[0] ?? n.all[0] ?? n.none[0])?.message ?? ''}`));
}
