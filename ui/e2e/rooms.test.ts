// Rules, privacy and media: what their pages show and do.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { World } from './world';

let world: World;
let page: Page;

beforeAll(async () => {
  world = await World.start();
  page = await world.page('/privacy');
});

afterAll(async () => {
  await world?.stop();
});

describe('privacy', () => {
  it('marks what the policy finds while somebody writes, and shows what goes out', async () => {
    const main = page.getByRole('main');
    await page.getByRole('textbox', { name: 'Text' }).fill('Grüße an anna@firm.com');
    await expect.poll(() => page.locator('mark').allTextContents()).toEqual(['anna@firm.comemail-address']);
    await expect.poll(() => main.textContent()).toContain('Grüße an {{{REDACTED-email-address}}}');
    await page.getByText('Another policy').click();
    await page.getByRole('textbox', { name: 'Policy' }).fill('nonsense = 1');
    await expect.poll(() => main.textContent()).toContain('unknown field `nonsense`');
  });

  it('makes a key, shows it once, and takes it back', async () => {
    await page.goto(`http://${world.admin}/privacy`);
    await page.getByRole('textbox', { name: 'Owner' }).fill('ada');
    await page.getByRole('button', { name: 'Make a key' }).click();
    const shown = await page.getByRole('status').locator('code').textContent();
    expect((shown ?? '').length).toBeGreaterThan(20);
    await page.getByRole('row', { name: /ada/ }).waitFor();
    await page.reload();
    await page.getByRole('row', { name: /ada/ }).waitFor();
    expect(await page.getByRole('main').textContent()).not.toContain(shown);
    await page.getByRole('button', { name: 'Revoke' }).click();
    await expect.poll(() => page.getByRole('row', { name: /ada/ }).getByRole('button', { name: 'Revoke' }).count()).toBeLessThan(2);
  });
});

describe('media', () => {
  it('makes a sealed link that says nothing of where it leads', async () => {
    await page.goto(`http://${world.admin}/media`);
    await page.getByRole('textbox', { name: 'Address' }).fill('https://films.example.com/secret-name.mp4');
    await page.getByRole('button', { name: 'Make the link' }).click();
    const link = (await page.getByRole('status').locator('pre').textContent()) ?? '';
    expect(link).toContain('/media/');
    expect(link).not.toContain('films.example.com');
    expect(link).not.toContain('secret-name');
    await page.getByText('Nothing streams now').waitFor();
  });
});

describe('rules', () => {
  it('say how to have some, and explain flows', async () => {
    await world.send('/orders');
    await page.goto(`http://${world.admin}/rules`);
    await page.getByText('No rules are in force').waitFor();
    const { flows } = await world.api<{ flows: { id: string }[] }>('/flows');
    await page.getByRole('textbox', { name: 'Flow' }).fill(flows[0]!.id);
    await page.getByRole('button', { name: 'Explain' }).click();
    await page.getByText('There are no rules.').waitFor();
  });
});
