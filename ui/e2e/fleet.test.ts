// Settings that replicas share: their revisions are listed and compared, and one takes the place of the newest.
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Postgres, programs } from './postgres';
import { World } from './world';

const ruleFile = (tag: string) => `rules:\n  - name: all\n    then:\n      - tag: ${tag}\n`;

describe.skipIf(!programs)('with a shared store', () => {
  let postgres: Postgres;
  let world: World;
  let page: Page;

  beforeAll(async () => {
    postgres = await Postgres.start();
    world = await World.start({ config: () => `[record]\nstore = ${JSON.stringify(postgres.url)}\n[fleet]\nname = "gateway-1"\n` });
    for (const [n, tag] of ['first', 'second'].entries()) {
      // At once: half a file would be a revision of its own.
      writeFileSync(join(world.home, 'rules.new'), ruleFile(tag));
      renameSync(join(world.home, 'rules.new'), join(world.home, 'rules.yaml'));
      const newest = async () => (await world.api<{ settings: { name: string; revision: number }[] }>('/fleet/settings')).settings.find((s) => s.name === 'rules')?.revision;
      await expect.poll(newest, { timeout: 20_000 }).toBe(n + 1);
    }
    page = await world.page('/settings');
  }, 60_000);

  afterAll(async () => {
    await world?.stop();
    await postgres?.stop();
  });

  it('revisions are compared, and going back needs a confirmation', async () => {
    const card = page.locator('#settings-revisions');
    await card.getByLabel('Setting').selectOption('Rules');
    const rows = card.getByRole('table', { name: 'Revisions of Rules' }).locator('tbody tr');
    await expect.poll(() => rows.count()).toBe(2);
    expect(await rows.nth(0).textContent()).toContain('gateway-1');
    await rows.nth(0).getByRole('button', { name: 'Changes' }).click();
    const diff = page.getByRole('dialog', { name: 'Rules: revision 2' });
    expect(await diff.getByRole('figure', { name: 'Difference' }).textContent()).toContain('tag: second');
    await diff.getByRole('button', { name: 'Close' }).last().click();
    expect(await rows.nth(0).getByRole('button', { name: 'Roll back' }).count()).toBe(0);

    await rows.nth(1).getByRole('button', { name: 'Roll back' }).click();
    const confirmation = page.getByRole('dialog', { name: 'Roll back Rules' });
    await confirmation.getByRole('button', { name: 'Cancel' }).click();
    await rows.nth(1).getByRole('button', { name: 'Roll back' }).click();
    await confirmation.getByRole('button', { name: 'Roll back' }).click();
    await expect.poll(() => rows.count()).toBe(3);
    expect(await rows.nth(0).textContent()).toMatch(/admin token \(gateway-1\).*back to 1/);
    await expect.poll(() => readFileSync(join(world.home, 'rules.yaml'), 'utf8')).toBe(ruleFile('first'));
    expect(world.complaints).toEqual([]);
  });
});
