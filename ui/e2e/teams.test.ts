// Teams, their budgets and spending on the page "Keys & budgets", with real requests.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { World } from './world';

let world: World;
let page: Page;

const CONFIG = (origin: string) => `
[llm.provider.anthropic]
url = "http://${origin}"
api_key = "sk-real"
`;

beforeAll(async () => {
  world = await World.start({ config: CONFIG });
  page = await world.page('/keys');
});

afterAll(async () => {
  await world?.stop();
});

const card = (name: string) => page.locator('section').filter({ has: page.getByRole('heading', { name, exact: true }) });
const teams = () => page.getByRole('table', { name: 'Teams and organisations' });

async function create(kind: 'team' | 'organisation', name: string, fields: Record<string, string>) {
  const form = card('Teams and organisations').locator('form');
  if (await form.count() === 0) await page.getByText('New team or organisation').click();
  await form.getByLabel('Kind').selectOption(kind);
  await form.getByLabel('Name').fill(name);
  for (const [label, value] of Object.entries(fields)) {
    // The text of a label around a list begins with its name, and goes on with the choices.
    const field = form.getByLabel(new RegExp(`^${label.replace(/[()]/g, '\\$&')}`));
    if (await field.evaluate((n) => n.tagName) === 'SELECT') await field.selectOption(value);
    else await field.fill(value);
  }
  await form.getByRole('button', { name: `Create ${kind}` }).click();
  await teams().getByRole('row', { name: new RegExp(`^${name} ${kind}`) }).waitFor();
}

it('a team has a budget, and what it spends is reported', async () => {
  await create('organisation', 'acme', { Tags: 'cost=17' });
  await create('team', 'search', { Organisation: 'acme', 'Budget per month (USD)': '5', Models: 'claude-*' });
  const row = teams().getByRole('row', { name: /^search team/ });
  expect(await row.textContent()).toMatch(/acme.*claude-\*, \$5 per month.*\$0 of \$5\.00 this month.*cost=17.*active/);

  const keys = card('Virtual keys');
  await keys.getByLabel('Owner').fill('ada');
  await keys.getByLabel('Team').selectOption('search');
  await keys.getByRole('button', { name: 'Create key' }).click();
  const key = (await page.getByRole('status').locator('code').textContent()) ?? '';
  const ask = (text: string, model = 'claude-sonnet-4-5') =>
    world.ask('/anthropic/v1/messages', { model, max_tokens: 9, messages: [{ role: 'user', content: text }] }, { 'anthropic-version': '2023-06-01', 'x-api-key': key });
  expect((await ask('hi')).status).toBe(200);
  expect((await ask('hi', 'gpt-5')).status).toBe(403);
  await expect.poll(() => row.textContent(), { timeout: 8000 }).toMatch(/1 key.*\$0\.0\d+ of \$5\.00 this month/);
  expect(await row.getByRole('meter', { name: 'Budget per month (USD) of team search' }).count()).toBe(1);

  const spending = card('Spending');
  await spending.getByRole('combobox', { name: /^By/ }).selectOption('Organisation');
  await expect.poll(() => spending.getByRole('table').textContent(), { timeout: 15_000 }).toMatch(/acme1.*\$0\.0\d+.*Total1/);
  await spending.getByRole('combobox', { name: /^By/ }).selectOption('Tag');
  await expect.poll(() => spending.getByRole('row', { name: /^cost=17/ }).count()).toBe(1);
  const download = page.waitForEvent('download');
  await spending.getByRole('link', { name: 'Export CSV' }).click();
  expect((await download).suggestedFilename()).toMatch(/^spend-\d{4}-\d\d-\d\d-\d{4}-\d\d-\d\d\.csv$/);

  await row.getByRole('button', { name: 'Edit team search' }).click();
  await page.getByRole('dialog').getByLabel('Budget per month (USD)').fill('7');
  await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
  await expect.poll(() => row.textContent()).toContain('of $7.00');
  await row.getByRole('button', { name: 'Disable team search' }).click();
  await expect.poll(() => row.textContent()).toContain('disabled');
  expect((await ask('hi')).status).toBe(401);
  expect(await row.getByRole('button', { name: /^Remove/ }).count(), 'it has a key').toBe(0);
});

it('a rotated key keeps its old secret during the overlap', async () => {
  const row = page.getByRole('table', { name: 'Virtual keys' }).getByRole('row', { name: /ada/ });
  await row.getByRole('button', { name: 'Rotate' }).click();
  await page.getByRole('dialog').getByLabel('The present secret is').selectOption('valid for 24 hours');
  await page.getByRole('dialog').getByRole('button', { name: 'Rotate' }).click();
  await expect.poll(() => row.textContent()).toMatch(/old secret valid until \d{4}-/);
});

it('the overview lists the keys of its days, and leads to their requests', async () => {
  await world.recorded(1, 'tag:key:*');
  await page.goto(`http://${world.admin}/overview?range=24h`);
  const list = page.locator('.list', { has: page.getByRole('heading', { name: /^Virtual keys, \d{4}-\d\d-\d\d to / }) });
  const button = list.getByRole('row').nth(1).getByRole('button');
  const name = (await button.textContent()) ?? '';
  expect(await list.getByRole('row').nth(1).textContent()).toMatch(/\$0\.0\d+$/);
  await button.click();
  await page.locator('.drawn .line[data-id]').first().waitFor();
  expect(new URL(page.url()).searchParams.get('q')).toContain(`tag:=key:${name}`);
  // The spending of days says nothing of a shorter range.
  await page.goto(`http://${world.admin}/overview?range=15m`);
  await page.getByRole('slider', { name: 'Requests over time' }).waitFor();
  expect(await list.count()).toBe(0);
});
