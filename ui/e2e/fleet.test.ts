// Settings that replicas share: their revisions are listed and compared, and one takes the place of the newest.
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Postgres, programs } from './postgres';
import { World } from './world';

const ruleFile = (tag: string) => `rules:\n  - name: all\n    then:\n      - tag: ${tag}\n`;

describe.skipIf(!programs)('with a shared store', () => {
  let postgres: Postgres;
  let world: World;

  beforeAll(async () => {
    postgres = await Postgres.start();
    world = await World.start({ config: () => `[record]\nstore = ${JSON.stringify(postgres.url)}\n[fleet]\nname = "gateway-1"\n` });
  }, 60_000);

  /** The lines of the newest revision of the rules. */
  async function newestText(): Promise<string> {
    const diff = await world.api<{ lines?: { text: string }[] }>('/fleet/settings/rules/diff?from=0');
    return diff.lines?.map((line) => line.text).join('\n') ?? '';
  }

  afterAll(async () => {
    await world?.stop();
    await postgres?.stop();
  });

  it('revisions are compared, and going back needs a confirmation', async () => {
    for (const tag of ['first', 'second']) {
      // At once: half a file would be a revision of its own.
      writeFileSync(join(world.home, 'rules.new'), ruleFile(tag));
      renameSync(join(world.home, 'rules.new'), join(world.home, 'rules.yaml'));
      await expect.poll(() => newestText(), { timeout: 20_000 }).toContain(`tag: ${tag}`);
    }
    const page = await world.page('/settings');
    const card = page.locator('#settings-revisions');
    await card.getByLabel('Setting').selectOption('Rules');
    const rows = card.getByRole('table', { name: 'Revisions of Rules' }).locator('tbody tr');
    // The rules that a replica begins with may be a revision, too.
    await expect.poll(() => rows.count()).toBeGreaterThan(1);
    const count = await rows.count();
    expect(await rows.nth(0).textContent()).toContain('gateway-1');
    await rows.nth(0).getByRole('button', { name: 'Changes' }).click();
    const diff = page.getByRole('dialog', { name: `Rules: revision ${count}` });
    expect(await diff.getByRole('figure', { name: 'Difference' }).textContent()).toContain('tag: second');
    await diff.getByRole('button', { name: 'Close' }).last().click();
    expect(await rows.nth(0).getByRole('button', { name: 'Roll back' }).count()).toBe(0);

    await rows.nth(1).getByRole('button', { name: 'Roll back' }).click();
    const confirmation = page.getByRole('dialog', { name: 'Roll back Rules' });
    await confirmation.getByRole('button', { name: 'Cancel' }).click();
    await rows.nth(1).getByRole('button', { name: 'Roll back' }).click();
    await confirmation.getByRole('button', { name: 'Roll back' }).click();
    await expect.poll(() => rows.count()).toBe(count + 1);
    expect(await rows.nth(0).textContent()).toMatch(new RegExp(`admin token \\(gateway-1\\).*back to ${count - 1}`));
    await expect.poll(() => readFileSync(join(world.home, 'rules.yaml'), 'utf8')).toBe(ruleFile('first'));
    expect(world.complaints).toEqual([]);
  }, 60_000);
});
