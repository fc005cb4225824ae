// Settings: a change is reviewed, written to the file with its comments, and takes effect.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { World } from './world';

const CONFIG = '# ours\n[record]\nbodies = true # all of them\n\n[[upstream.proxy]]\nhosts = ["*.corp"]\nvia = ["http://ann:s3cret@proxy.test:3128"]\n';
let world: World;
let page: Page;

beforeAll(async () => {
  world = await World.start({ config: () => CONFIG });
  page = await world.page('/settings');
  await page.getByText('Configuration file', { exact: false }).first().waitFor();
});

afterAll(async () => {
  await world?.stop();
});

const file = () => readFileSync(join(world.home, 'config.toml'), 'utf8');
const bar = () => page.getByRole('region', { name: 'Changes', exact: true });
const flows = async (path: string) => {
  await fetch(`http://${world.admin}/api/v1/flows/flush`, { method: 'POST', headers: { authorization: `Bearer ${world.token}` } });
  return (await world.api<{ count: number }>(`/flows/count?query=${encodeURIComponent(`path:${path}`)}`)).count;
};

async function apply() {
  await bar().getByRole('button', { name: 'Review' }).click();
  const dialog = page.getByRole('dialog', { name: 'Review changes' });
  await dialog.getByRole('figure', { name: 'Difference' }).waitFor();
  const shown = (await dialog.textContent()) ?? '';
  await dialog.getByRole('button', { name: 'Apply' }).click();
  await expect.poll(() => dialog.count()).toBe(0);
  return shown;
}

it('recording is turned off and on at once', async () => {
  await world.send('/before');
  await page.getByLabel('Record traffic', { exact: true }).uncheck();
  expect(await bar().textContent()).toContain('1 change');
  const shown = await apply();
  expect(shown).toContain('enabled = false');
  expect(shown).toContain('Takes effect at once');
  expect(file()).toBe(CONFIG.replace('all of them\n', 'all of them\nenabled = false\n'));
  await world.send('/unseen');
  await page.getByLabel('Record traffic', { exact: true }).check();
  await apply();
  await world.send('/after');
  expect([await flows('/before'), await flows('/unseen'), await flows('/after')]).toEqual([1, 0, 1]);
});

it('several changes are reviewed together, and one can be undone', async () => {
  await page.getByLabel('TLS interception', { exact: true }).selectOption('listed');
  await page.getByLabel('Hosts never intercepted', { exact: true }).fill('bank.test\n*.health.test');
  await page.getByLabel('Keep flows for', { exact: true }).fill('7d');
  await page.getByLabel('Hosts never intercepted', { exact: true }).blur();
  await expect.poll(() => bar().textContent()).toContain('3 changes');
  await page.getByRole('button', { name: 'Undo the change of Keep flows for' }).click();
  await expect.poll(() => bar().textContent()).toContain('2 changes');
  await apply();
  expect(file()).toContain('exclude = ["bank.test", "*.health.test"]');
  const { config } = await world.api<{ config: { intercept: { mode: string } } }>('/config');
  expect(config.intercept.mode).toBe('listed');
});

it('masks are set, and the next recording has them', async () => {
  const masks = page.getByLabel('Masked header fields', { exact: true });
  await masks.fill(`${await masks.inputValue()}\nx-secret-*`);
  await masks.blur();
  const query = page.getByLabel('Masked query parameters', { exact: true });
  await query.fill(`${await query.inputValue()}\npin`);
  await query.blur();
  await expect.poll(() => bar().textContent()).toContain('2 changes');
  await apply();
  expect(file()).toContain('"x-secret-*"');
  await world.send('/masked?pin=4711&page=2', { headers: { 'x-secret-name': 'Hubert', 'x-plain': 'seen' } });
  await world.recorded(1, 'path:/masked');
  const { flows: [found] } = await world.api<{ flows: { id: string; path: string }[] }>('/flows?query=path:/masked');
  const whole = JSON.stringify(await world.api(`/flows/${found!.id}`));
  expect([whole.includes('Hubert'), whole.includes('4711'), whole.includes('seen'), whole.includes('page=2')]).toEqual([false, false, true, true]);
  await page.getByRole('button', { name: 'Use the default for Masked header fields' }).click();
  await apply();
  expect(file()).not.toContain('x-secret-*');
});

it('notifications and presets of approvals are set', async () => {
  await page.getByLabel('Desktop notifications', { exact: true }).check();
  await page.getByLabel('Time for a decision', { exact: true }).fill('2m');
  await page.getByRole('group', { name: 'Approval presets' }).getByLabel('npm', { exact: true }).check();
  await page.getByRole('group', { name: 'Approval presets' }).getByLabel('pypi', { exact: true }).check();
  await page.getByRole('group', { name: 'Approval presets' }).getByLabel('pypi', { exact: true }).uncheck();
  await expect.poll(() => bar().textContent()).toContain('3 changes');
  await apply();
  for (const line of ['notify = true', 'timeout = "2m"', 'presets = ["npm"]']) expect(file()).toContain(line);
  const { rules } = await world.api<{ rules: { note?: string }[] }>('/approvals/rules');
  expect(rules.some((r) => r.note === 'preset npm')).toBe(true);
});

it('traffic has a switch for the recording, which says what it did and takes it back', async () => {
  const other = await world.page('/');
  const record = other.getByRole('switch', { name: 'Record', exact: true });
  await expect.poll(() => record.getAttribute('aria-checked')).toBe('true');
  await record.click();
  await other.getByText('New requests are not recorded').waitFor();
  await expect.poll(() => record.getAttribute('aria-checked')).toBe('false');
  expect(file()).toContain('enabled = false');
  await world.send('/not-recorded');
  await other.getByRole('button', { name: 'Undo' }).click();
  await expect.poll(() => record.getAttribute('aria-checked')).toBe('true');
  await world.send('/recorded-again');
  await world.recorded(1, 'path:/recorded-again');
  expect(await flows('/not-recorded')).toBe(0);
  await other.context().close();
});

it('a recording that is off is said across the table, and turned on there', async () => {
  const other = await world.page('/');
  await other.getByRole('switch', { name: 'Record', exact: true }).click();
  const bar = other.getByText('New requests are forwarded, but not recorded.');
  await bar.waitFor();
  await other.getByRole('button', { name: 'Turn on' }).click();
  await expect.poll(() => bar.count()).toBe(0);
  await expect.poll(() => other.getByRole('switch', { name: 'Record', exact: true }).getAttribute('aria-checked')).toBe('true');
  await other.context().close();
});

it('settings are found by a search, and their sections by the navigation', async () => {
  const other = await world.page('/settings');
  const search = other.getByRole('searchbox', { name: 'Search the settings' });
  const sections = other.getByRole('navigation', { name: 'Sections' }).getByRole('link');
  await sections.first().waitFor();
  const all = await sections.count();
  await search.fill('pinning');
  await expect.poll(() => sections.allTextContents()).toEqual(['Interception', 'Pinning bypass']);
  expect(new URL(other.url()).searchParams.get('q')).toBe('pinning');
  expect(await other.getByLabel('Record bodies', { exact: true }).count()).toBe(0);
  await search.fill('logout');
  await expect.poll(() => sections.allTextContents()).toEqual(['Access']);
  await search.fill('nothing of that kind');
  await other.getByRole('button', { name: 'Show all' }).click();
  await expect.poll(() => sections.count()).toBe(all);
  await other.getByRole('link', { name: 'Doctor' }).click();
  await expect.poll(() => other.locator('#settings-doctor').evaluate((n) => n.getBoundingClientRect().top)).toBeLessThan(700);
  // A list counts as changed while it is written.
  await other.getByLabel('Hosts to intercept', { exact: true }).pressSequentially('a.test\nb');
  await other.getByRole('region', { name: 'Changes', exact: true }).getByText('1 change').waitFor();
  expect(await other.getByLabel('Hosts to intercept', { exact: true }).inputValue()).toBe('a.test\nb');
  await other.context().close();
});

it('the search covers values and the keys without a field, and has an address', async () => {
  const other = await world.page('/settings?q=bank.test');
  // The value that an earlier test has set.
  expect(await other.getByLabel('Hosts never intercepted', { exact: true }).inputValue()).toContain('bank.test');
  expect(await other.locator('.setting').count()).toBe(1);
  // From anywhere on the page.
  await other.keyboard.press('Escape');
  await other.getByRole('heading', { name: 'Settings', level: 1 }).click();
  await other.keyboard.press('/');
  await other.keyboard.press('Control+A');
  await other.keyboard.type('playlist_ttl');
  const keys = other.locator('#settings-other');
  await keys.getByText('How long a playlist or manifest is kept').waitFor();
  const { config } = await world.api<{ config: { media: { cache: { playlist_ttl: string } } } }>('/config');
  expect(await keys.locator('.value').textContent()).toBe(config.media.cache.playlist_ttl);
  await keys.getByRole('link', { name: 'media.cache.playlist_ttl' }).click();
  await other.getByRole('heading', { name: '[media.cache]' }).waitFor();
  expect(new URL(other.url()).hash).toBe('#mediacache');
  await other.context().close();
});

it('a setting and a section have addresses, and the navigation marks where one is', async () => {
  const other = await world.page('/settings#record.retention_age');
  const sections = other.getByRole('navigation', { name: 'Sections' });
  const current = () => sections.locator('[aria-current]').allTextContents();
  await expect.poll(current).toEqual(['Recording']);
  await expect.poll(() => other.locator('[id="record.retention_age"]').evaluate((n) => n.getBoundingClientRect().top)).toBeLessThan(200);
  // The last sections cannot reach the top of the page.
  for (const name of ['Doctor', 'About', 'Interception']) {
    await sections.getByRole('link', { name }).click();
    await expect.poll(current, { message: name }).toEqual([name]);
  }
  // By hand, the page decides.
  await other.locator('.content').hover();
  await other.mouse.wheel(0, 100_000);
  await expect.poll(current).not.toEqual(['Interception']);
  await other.setViewportSize({ width: 400, height: 800 });
  await sections.getByRole('link', { name: 'Doctor' }).click();
  await expect.poll(current).toEqual(['Doctor']);
  await expect.poll(() => sections.getByRole('link', { name: 'Doctor' }).evaluate((n) => {
    const [link, nav] = [n.getBoundingClientRect(), n.parentElement!.getBoundingClientRect()];
    return link.left >= nav.left && link.right <= nav.right;
  })).toBe(true);
  await other.context().close();
});

it('a number that is emptied is no change, and one is written in its place', async () => {
  const number = page.getByLabel('Refusals until a host counts as pinned', { exact: true });
  const before = await number.inputValue();
  await number.fill('7');
  await expect.poll(() => bar().textContent()).toContain('1 change');
  await number.fill('');
  await expect.poll(() => bar().count()).toBe(0);
  expect(await number.inputValue()).toBe('');
  await number.pressSequentially('9');
  await expect.poll(() => bar().textContent()).toContain('1 change');
  await number.fill('');
  await number.blur();
  expect([await number.inputValue(), await bar().count()]).toEqual([before, 0]);
});

it('times are those of the clock of the reader', async () => {
  const { key } = await world.api<{ key: { expires: string } }>('/keys', {
    method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ owner: 'ada', expires: '2099-01-31T20:15:00Z' }),
  }).then(async () => ({ key: (await world.api<{ keys: { expires: string }[] }>('/keys')).keys[0]! }));
  expect(key.expires).toMatch(/^2099-01-31T20:15:00/);
  const other = await world.page('/keys', { timezoneId: 'Asia/Tokyo' });
  await other.getByRole('table', { name: 'Virtual keys' }).getByText('2099-02-01 05:15').waitFor();
  await other.goto(`http://${world.admin}/settings`);
  const { records } = await world.api<{ records: { time: string }[] }>('/audit?text=/keys&limit=1');
  const local = new Date(Date.parse(records[0]!.time) + 9 * 3_600_000).toISOString().slice(0, 19).replace('T', ' ');
  await other.getByRole('table', { name: 'Audit trail' }).getByText(local).first().waitFor();
  await other.context().close();
});

it('a wrong value is explained and nothing is written', async () => {
  const before = file();
  await page.getByLabel('Keep flows for', { exact: true }).fill('soon');
  await bar().getByRole('button', { name: 'Review' }).click();
  const dialog = page.getByRole('dialog', { name: 'Review changes' });
  await dialog.getByText('`soon` is not a duration').waitFor();
  expect(await dialog.getByRole('button', { name: 'Apply' }).isDisabled()).toBe(true);
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await bar().getByRole('button', { name: 'Discard' }).click();
  expect(await bar().count()).toBe(0);
  expect(file()).toBe(before);
});

it('credentials are masked, and stay when the rest of a proxy changes', async () => {
  expect(await page.getByLabel('Via', { exact: true }).inputValue()).toBe('http://***@proxy.test:3128');
  await page.getByLabel('Hosts', { exact: true }).fill('*.corp, intranet.test');
  await page.getByLabel('Hosts', { exact: true }).blur();
  expect(await apply()).not.toContain('s3cret');
  expect(file()).toContain('hosts = ["*.corp", "intranet.test"]\nvia = ["http://ann:s3cret@proxy.test:3128"]');
});

it('a file that changed meanwhile is shown anew before it is written', async () => {
  await page.getByLabel('Record bodies', { exact: true }).uncheck();
  await bar().getByRole('button', { name: 'Review' }).click();
  const dialog = page.getByRole('dialog', { name: 'Review changes' });
  await dialog.getByRole('figure', { name: 'Difference' }).waitFor();
  writeFileSync(join(world.home, 'config.toml'), `# by hand\n${file()}`);
  await dialog.getByRole('button', { name: 'Apply' }).click();
  await dialog.getByText('was changed by someone else').waitFor();
  await dialog.getByRole('button', { name: 'Apply' }).click();
  await expect.poll(() => dialog.count()).toBe(0);
  expect(file()).toMatch(/^# by hand\n/);
  expect(file()).toContain('bodies = false # all of them');
});

it('a managed file locks every field', async () => {
  writeFileSync(join(world.home, 'config.toml'), `[admin]\nsettings = "read-only"\n`);
  await page.reload();
  await page.getByText('admin.settings = "read-only" forbids changes').waitFor();
  expect(await page.getByLabel('Record traffic', { exact: true }).isDisabled()).toBe(true);
  expect(await page.getByLabel('Hosts never intercepted', { exact: true }).isDisabled()).toBe(true);
  expect(await page.getByRole('group', { name: 'Approval presets' }).getByRole('checkbox').first().isDisabled()).toBe(true);
  const other = await world.page('/');
  const record = other.getByRole('switch', { name: 'Record', exact: true });
  await expect.poll(() => record.getAttribute('title')).toContain('forbids changes');
  expect(await record.isDisabled()).toBe(true);
  await other.context().close();
});

it('without a shared store there are no revisions', async () => {
  await page.locator('#settings-audit').waitFor();
  expect(await page.locator('#settings-revisions').count()).toBe(0);
});

it('no external requests and no console errors', () => {
  expect(world.strays).toEqual([]);
  expect(world.complaints).toEqual([]);
});
