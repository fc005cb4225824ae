// Routes of the LLM gateway on the page "Keys & budgets", with real requests.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { World } from './world';

let world: World;
let page: Page;

/** The first deployment refuses connections. */
const CONFIG = (origin: string) => `
[llm.provider.dead]
url = "http://127.0.0.1:9"
[llm.provider.good]
url = "http://${origin}"
[llm.route.smart]
deployments = [{ provider = "dead", model = "m" }, { provider = "good", priority = 1 }]
cooldown_failures = 1
sticky = "user"
`;

beforeAll(async () => {
  world = await World.start({ config: CONFIG });
  await world.ask('/openai/v1/chat/completions', { model: 'smart', messages: [{ role: 'user', content: 'hi' }] }, {});
  page = await world.page('/keys');
});

afterAll(async () => {
  await world.stop();
});

it('shows the state of each deployment and leads to its requests', async () => {
  const table = page.getByRole('table', { name: 'Deployments of smart' });
  await table.waitFor();
  const row = (name: string) => table.getByRole('row', { name: new RegExp(`^${name}`) });
  await expect.poll(() => row('dead/m').innerText()).toMatch(/priority 0, weight 1\s+Cooling down, \d+ s/);
  expect(await row('good').innerText()).toMatch(/priority 1, weight 1\s+Healthy/);
  expect(await page.getByRole('heading', { name: /^smart weighted, sticky by user, 9 retries left/ }).count()).toBe(1);
  const query = 'tag:"route:smart" (tag:"deployment:good" OR tag:"attempt-failed:good")';
  await row('good').getByRole('link').click();
  await page.getByRole('grid').or(page.getByRole('table')).first().waitFor();
  await expect.poll(() => new URL(page.url()).searchParams.get('q')).toBe(query);
  await world.recorded(1, query);
});
