// Overview, settings, narrow windows, and an unreachable instance.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { World } from './world';

let world: World;
let page: Page;

beforeAll(async () => {
  world = await World.start();
  page = await world.page('/overview');
});

afterAll(async () => {
  await world?.stop();
});

it('the overview agrees with /metrics', async () => {
  for (const path of ['/orders', '/missing', '/cut', '/text']) await world.send(path);
  await world.webSocket();
  await world.recorded(5);
  await page.goto(`http://${world.admin}/overview`);
  await page.getByText('Since the start of this instance').click();
  const text = await fetch(`http://${world.admin}/metrics`, { headers: { authorization: `Bearer ${world.token}` } }).then((r) => r.text());
  // The sum over all label values but the given one.
  const metric = (name: string, label = '') => {
    const samples = text.split('\n').filter((line) => line.startsWith(`${name} `) || (line.startsWith(`${name}{`) && line.includes(label)));
    return samples.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0);
  };
  const figure = async (row: string | RegExp) => Number((await page.getByRole('row', { name: row }).getByRole('cell').last().textContent())?.replace(/[^\d.]/g, ''));
  await page.getByText(`${metric('interflow_http_requests_total')} since the start, 0 in progress`).waitFor();
  for (const [row, name, label] of [
    [/^2xx/, 'interflow_http_responses_total', 'code_class="2xx"'], [/^4xx/, 'interflow_http_responses_total', 'code_class="4xx"'],
    [/^upstream_closed/, 'interflow_errors_total', 'kind="upstream_closed"'], [/^messages/, 'interflow_stream_messages_total', ''],
    [/^flows stored/, 'interflow_recorder_stored_flows', ''], [/^dropped/, 'interflow_recorder_dropped_flows_total', ''],
  ] as const) {
    expect(text, name).toContain(`# TYPE ${name} `);
    expect(await figure(row), name).toBe(metric(name, label));
  }
  const bars = await page.getByRole('table', { name: 'Requests by duration' }).getByRole('row').evaluateAll((list) => list.map((r) => Number(r.lastElementChild?.textContent)));
  expect(bars.reduce((n, k) => n + k, 0)).toBe(metric('interflow_http_request_duration_seconds_count'));
});

describe('the settings', () => {
  it('offer the certificate with instructions for each system', async () => {
    await page.goto(`http://${world.admin}/settings`);
    const ca = await world.api<{ fingerprint_sha256: string }>('/ca');
    await page.getByText(ca.fingerprint_sha256).waitFor();
    const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Download certificate' }).click()]);
    expect(file.suggestedFilename()).toBe('interflow-ca.pem');
    for (const [system, words] of [['macOS', 'security add-trusted-cert'], ['Windows', 'certutil'], ['Fedora, RHEL', 'update-ca-trust'], ['iOS', 'full trust']] as const) {
      await page.getByRole('button', { name: system }).click();
      await expect.poll(() => page.getByRole('main').textContent()).toContain(words);
    }
    await page.getByRole('button', { name: 'Copy PEM' }).click();
    await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toContain('BEGIN CERTIFICATE');
  });

  it('show bypassed clients, the configuration and the version', async () => {
    const main = page.getByRole('main');
    await main.getByText('No bypassed clients').waitFor();
    expect(await main.getByRole('button', { name: 'Intercept all again' }).isDisabled()).toBe(true);
    await main.getByText('Effective configuration').click();
    await expect.poll(() => main.textContent()).toContain('"record"');
    const { version } = await world.api<{ version: string }>('/stats');
    expect(await main.textContent()).toContain(version);
  });

  it('list clients that pin certificates, and remove the bypass', async () => {
    let forgotten = false;
    await page.route('**/api/v1/passthrough', async (route) => {
      if (route.request().method() === 'DELETE') {
        forgotten = true;
        await route.fulfill({ status: 204 });
      } else {
        const clients = forgotten ? [] : [{ client: '127.0.0.1', host: 'pinned.test', seconds_left: 61 }];
        await route.fulfill({ json: { clients } });
      }
    });
    await page.reload();
    await page.getByText('pinned.test').waitFor();
    await page.getByRole('button', { name: 'Intercept all again' }).click();
    await page.getByText('No bypassed clients').waitFor();
    expect(forgotten).toBe(true);
    await page.unroute('**/api/v1/passthrough');
  });

  it('change the theme', async () => {
    const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    await page.getByLabel('Dark').check();
    const dark = await background();
    await page.getByLabel('Light').check();
    expect(await background()).not.toBe(dark);
    await page.getByRole('radio', { name: 'System' }).check();
  });
});

it('follows the colour scheme of the system', async () => {
  const colours = [];
  for (const colorScheme of ['light', 'dark'] as const) {
    const other = await world.page('/', { colorScheme });
    colours.push(await other.evaluate(() => getComputedStyle(document.body).backgroundColor));
    await other.context().close();
  }
  expect(colours[0]).not.toBe(colours[1]);
});

it('fits a narrow window: no overflow, and a flow covers the list', async () => {
  await world.send('/narrow');
  const narrow = await world.page('/', { viewport: { width: 390, height: 780 } });
  await narrow.locator('.drawn .line[data-id]').first().click();
  await narrow.getByRole('tabpanel').waitFor();
  expect(await narrow.locator('.list').isVisible()).toBe(false);
  for (const path of ['/', '/conversations', '/approvals', '/rules', '/privacy', '/media', '/overview', '/settings', '/compose', '/intercept', '/keys']) {
    await narrow.goto(`http://${world.admin}${path}`);
    await narrow.waitForTimeout(300);
    const over = await narrow.evaluate(() => {
      const shown = document.querySelector('.shown')!;
      return Math.max(document.documentElement.scrollWidth - innerWidth, shown.scrollWidth - shown.clientWidth);
    });
    expect(over, path).toBeLessThanOrEqual(0);
  }
  await narrow.context().close();
});

it('logs no errors and makes no external requests', () => {
  expect([world.complaints, world.strays]).toEqual([[], []]);
});
