// The embedded documentation: search, the outline and copy buttons.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { World } from './world';

let world: World;
let page: Page;
const contents = () => page.getByRole('navigation', { name: 'Documentation' });
const field = () => page.getByRole('searchbox', { name: 'Search the documentation' });

beforeAll(async () => {
  world = await World.start();
  page = await world.page('/docs/guides/llm-gateway.html');
});

afterAll(async () => {
  await world?.stop();
});

it('finds sections of all pages by keyboard alone', async () => {
  await page.keyboard.press('/');
  await page.keyboard.type('budget alert');
  await expect.poll(() => contents().getByRole('status').textContent()).toMatch(/^\d+ sections$/);
  expect(await contents().getByRole('listitem').first().textContent()).toContain('Teams, spending and budget alerts');
  expect(await contents().getByRole('link', { name: 'Introduction' }).isVisible()).toBe(false);
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { level: 1, name: 'Virtual keys, limits and budgets' }).waitFor();
  expect(new URL(page.url()).hash).toBe('#teams-spending-and-budget-alerts');
});

it('says that nothing was found, and Escape shows the table of contents again', async () => {
  await field().fill('zzzzzz');
  await expect.poll(() => contents().getByRole('status').textContent()).toBe('Nothing found');
  await page.keyboard.press('Escape');
  await contents().getByRole('link', { name: 'Introduction' }).waitFor();
});

it('copies the commands of a block without prompts and output', async () => {
  await page.goto(`http://${world.admin}/docs/guides/llm-gateway.html`);
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.getByRole('button', { name: 'Copy' }).first().click();
  await page.getByRole('button', { name: 'Copied' }).waitFor();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  expect(copied).toMatch(/^interflow run --origins\ncurl -s /);
  expect(copied).not.toContain('$ ');
});

it('colours code by the strict policy, and leads from a page that was merged to its new place', async () => {
  await page.goto(`http://${world.admin}/docs/guides/gateway.html`);
  await page.waitForURL('**/docs/guides/llm-gateway.html#routes-to-other-origins');
  const colour = (token: string) => page.locator(`pre .${token}`).first().evaluate((node) => getComputedStyle(node).color);
  expect(await colour('prompt')).not.toBe(await colour('key'));
  expect(await page.locator('nav [aria-current]').isVisible()).toBe(true);
  expect([...world.complaints, ...world.strays]).toEqual([]);
});

it('the outline leads to a section', async () => {
  await page.setViewportSize({ width: 1400, height: 900 });
  await page.getByRole('complementary', { name: 'On this page' }).getByRole('link', { name: 'Errors' }).click();
  expect(new URL(page.url()).hash).toBe('#errors');
});
