// People: login at an issuer of another site, what a role may do on the pages, API tokens, and the audit trail.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { Issuer } from './issuer';
import { World } from './world';

let world: World;
let issuer: Issuer;

beforeAll(async () => {
  issuer = await Issuer.start();
  const roles = 'viewer = ["staff"]\noperator = ["ops"]\nadmin = ["root"]\nread_bodies = ["privacy"]\n';
  const config = `[admin.oidc]\nissuer = "${issuer.url}"\nname = "Example ID"\nclient_id = "interflow"\n[admin.oidc.roles]\n${roles}`;
  world = await World.start({ config: () => config });
  await world.send('/echo', { method: 'POST', headers: { 'content-type': 'text/plain' }, body: 'the text of the body' });
  await world.recorded(1);
});

afterAll(async () => {
  await world?.stop();
  issuer?.stop();
});

/** Logs in over the login page, as a person of these groups. */
async function logIn(groups: string[], path = '/settings'): Promise<Page> {
  issuer.groups = groups;
  const context = await world.browser.newContext({ viewport: { width: 1440, height: 860 } });
  const page = await context.newPage();
  page.setDefaultTimeout(8000);
  await page.goto(`http://${world.admin}${path}`);
  await page.getByRole('link', { name: 'Log in with Example ID' }).click();
  return page;
}

it('a person logs in and comes back to the page that was asked for', async () => {
  const page = await logIn(['ops', 'privacy']);
  await page.waitForURL(`http://${world.admin}/settings`);
  const access = page.locator('#settings-access');
  await access.getByText('Anna Example').waitFor();
  expect(await access.textContent()).toContain('view, read_bodies, operate');
  // The changes that could be undone hold the texts of the rules.
  const edit = { file: 'rules.yaml', before: '', after: '# a secret of the rules', words: 'save the text' };
  await page.evaluate((text) => sessionStorage.setItem('rule-edits', text), JSON.stringify([edit]));
  await page.reload();
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByRole('link', { name: 'Log in with Example ID' }).waitFor();
  expect(await page.evaluate(() => JSON.stringify({ ...sessionStorage }))).not.toContain('secret');
  await page.context().close();
});

it('what waits to be deleted is deleted before the log-out', async () => {
  const page = await logIn(['root'], '/');
  await world.send('/orders');
  await world.recorded(1, 'path:/orders');
  const order: string[] = [];
  await page.route('**/flows/delete', async (route) => {
    const response = await route.fetch();
    order.push(`deletion ${response.status()}`);
    await route.fulfill({ response });
  });
  page.on('request', (request) => { if (new URL(request.url()).pathname === '/logout') order.push('log-out'); });
  await page.locator('.drawn .line[data-id]').filter({ hasText: '/orders' }).first().click();
  await page.keyboard.press('d');
  await page.getByRole('link', { name: /^Settings/ }).click();
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByRole('link', { name: 'Log in with Example ID' }).waitFor();
  expect(order).toEqual(['deletion 200', 'log-out']);
  expect((await world.api<{ count: number }>('/flows/count?query=path:/orders')).count).toBe(0);
  await page.context().close();
});

it('a viewer sees flows, not their bodies, and controls that are disabled with the reason', async () => {
  const page = await logIn(['staff'], '/');
  await page.locator('.drawn .line[data-id]').first().click();
  await page.getByRole('tab', { name: 'Response' }).click();
  await page.getByText('needs the right read_bodies').first().waitFor();
  await page.locator('.drawn .line[data-id]').first().click({ button: 'right' });
  const remove = page.getByRole('menuitem', { name: 'Delete', exact: true });
  expect([await remove.isDisabled(), await remove.getAttribute('title')]).toEqual([true, expect.stringContaining('administer')]);
  await page.keyboard.press('Escape');
  // Files and rules hold what bodies say.
  for (const [menu, entry] of [['Export', /^HAR/], ['Copy as', 'curl'], ['Save as', 'HAR'], ['New rule', 'Tag…']] as const) {
    await page.getByRole('button', { name: `${menu} ▾` }).click();
    const found = page.getByRole('menuitem', { name: entry }).first();
    expect([menu, await found.isDisabled(), await found.getAttribute('title')]).toEqual([menu, true, expect.stringContaining('read bodies')]);
    await page.getByRole('button', { name: `${menu} ▾` }).click();
  }
  await page.goto(`http://${world.admin}/conversations`);
  expect(await page.getByRole('alert').textContent()).toContain('read bodies and conversations');
  await page.goto(`http://${world.admin}/settings`);
  await page.getByText('may not change settings').first().waitFor();
  expect(await page.getByLabel('Record traffic', { exact: true }).isDisabled()).toBe(true);
  expect(await page.getByRole('heading', { name: 'Audit trail' }).count()).toBe(0);
  await page.context().close();
});

it('a viewer sees the active rules, and is not told with every poll what is not theirs', async () => {
  const page = await logIn(['staff'], '/');
  await page.locator('.drawn .line[data-id]').first().waitFor();
  const refused: string[] = [];
  page.on('response', (response) => { if (response.status() === 403) refused.push(new URL(response.url()).pathname); });
  await page.getByRole('link', { name: /^Rules/ }).click();
  await page.getByRole('heading', { name: 'Active rules' }).waitFor();
  // Two polls.
  await page.waitForTimeout(4500);
  expect([refused, await page.locator('.notice').count(), await page.getByRole('textbox', { name: 'Rules', exact: true }).count()]).toEqual([[], 0, 0]);
  await page.context().close();
});

it('somebody without a role is told why', async () => {
  const page = await logIn(['others']);
  const why = await page.getByRole('alert').textContent();
  expect(why).toContain('Anna Example');
  expect(await page.getByRole('link', { name: 'Log in with the admin token' }).count()).toBe(1);
  await page.context().close();
});

it('an admin creates a token, which works until it is revoked, and finds both in the audit trail', async () => {
  const page = await world.page('/settings');
  await page.getByLabel('Name', { exact: true }).fill('ci');
  await page.getByRole('button', { name: 'Create token' }).click();
  const shown = (await page.locator('.made code').textContent()) ?? '';
  expect(shown).toMatch(/^ift_[0-9a-f]+_[0-9a-f]{64}$/);
  const ask = () => fetch(`http://${world.admin}/api/v1/flows`, { headers: { authorization: `Bearer ${shown}` } }).then((r) => r.status);
  expect(await ask()).toBe(200);
  await page.getByRole('button', { name: 'Revoke ci' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
  await expect.poll(ask).toBe(401);
  await page.reload();
  const trail = page.getByRole('table', { name: 'Audit trail' });
  await trail.getByText('DELETE /tokens/{id}').waitFor();
  const text = (await trail.textContent()) ?? '';
  expect(text).toContain('POST /tokens');
  expect(text).not.toContain(shown);
  expect(world.complaints).toEqual([]);
  await page.context().close();
});
