// The page "Intercept": commands with the addresses of the instance, first requests, and a browser that a button starts.
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { World } from './world';

let world: World;
let page: Page;
const folder = mkdtempSync(join(tmpdir(), 'interflow-browsers-'));
const before = { PATH: process.env['PATH'], DISPLAY: process.env['DISPLAY'] };

beforeAll(async () => {
  // A "Chrome" without a window that opens a page of its own, since this machine may have no display.
  const chromium = process.env['CHROMIUM'] ?? '/usr/bin/chromium';
  for (const name of ['bin', 'home']) mkdirSync(join(folder, name));
  const script = join(folder, 'bin', 'google-chrome');
  // Without a window there is room for one page only: that of the test, in place of the empty one.
  const pages = 'for a; do shift; [ "$a" = about:blank ] || set -- "$@" "$a"; done';
  writeFileSync(script, `#!/bin/sh\n${pages}\nexec ${chromium} "$@" --headless --no-sandbox --disable-gpu "$(cat ${join(folder, 'url')})"\n`);
  chmodSync(script, 0o755);
  process.env['PATH'] = `${join(folder, 'bin')}:${before.PATH}`;
  process.env['DISPLAY'] = ':nowhere';
  // The data directory outlives the instance, so that the end of its browser can be seen.
  world = await World.start({ home: join(folder, 'home') });
  writeFileSync(join(folder, 'url'), `http://${world.origin}/orders?from=chrome`);
  page = await world.page('/intercept');
});

afterAll(async () => {
  await world?.stop();
  Object.assign(process.env, before);
  // The browser ends with the instance, and leaves no profile.
  const profiles = join(folder, 'home', 'browser-profiles');
  const left = () => (existsSync(profiles) ? readdirSync(profiles) : []);
  for (let tries = 0; tries < 150 && left().length > 0; tries += 1) await new Promise((done) => setTimeout(done, 100));
  expect(left()).toEqual([]);
  rmSync(folder, { recursive: true, force: true });
});

const card = (title: string) => page.getByRole('region', { name: title, exact: true });

describe('the cards', () => {
  it('have the commands and addresses of this instance', async () => {
    // The data directory is not the default one.
    const interflow = `interflow --data-dir ${world.home}`;
    await card('Terminal').getByText(`${interflow} exec -- COMMAND`).waitFor();
    expect(await card('Terminal').textContent()).toContain(`export https_proxy=http://${world.proxy}`);
    await card('Terminal').getByRole('button', { name: 'fish' }).click();
    expect(await card('Terminal').textContent()).toContain(`${interflow} ca trust-env --shell fish | source`);
    expect(await card('Container').textContent()).toContain(`${interflow} exec --docker -- docker run`);
    await card('Container').getByText('Without interflow exec').click();
    await expect.poll(() => card('Container').textContent()).toContain('http_proxy=http://container:');
    const container = (await card('Container').textContent()) ?? '';
    expect(container).toContain(`-v ${join(world.home, 'trust', 'bundle.pem')}:`);
    expect(existsSync(join(world.home, 'trust', 'bundle.pem'))).toBe(true);
    expect(await card('LLM application').textContent()).toContain(`ANTHROPIC_BASE_URL=http://${world.gateway}/anthropic`);
    await card('LLM application').getByRole('button', { name: 'Copy OpenAI' }).click();
    await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toBe(`OPENAI_BASE_URL=http://${world.gateway}/openai/v1`);
  });

  it('begin their commands as those of other pages do', async () => {
    for (const [path, command] of [['/rules', 'run --rules FILE'], ['/settings', 'doctor']] as const) {
      const other = await world.page(path);
      await other.getByText(`interflow --data-dir ${world.home} ${command}`).first().waitFor();
      await other.close();
    }
  });

  it('say how to admit a phone if the proxy listens on loopback', async () => {
    expect(await card('Phone').textContent()).toContain(`interflow --data-dir ${world.home} run --listen-proxy 0.0.0.0:${world.proxy.split(':')[1]}`);
    expect(await card('Phone').getByRole('img').count()).toBe(0);
    expect(await card('Phone').getByText('Waiting').count()).toBe(0);
  });

  it('show when their first request has arrived', async () => {
    for (const title of ['Terminal', 'LLM application', 'Whole machine']) await card(title).getByText('Waiting for the first request').waitFor();
    await world.send('/orders?from=terminal');
    await card('Terminal').getByText('/orders?from=terminal').waitFor();
    await world.send('/orders?from=machine', { headers: { 'user-agent': 'Mozilla/5.0 (X11)' } });
    await card('Whole machine').getByText('/orders?from=machine').waitFor();
    await world.ask('/anthropic/v1/messages', { model: 'm', messages: [] }).catch(() => undefined);
    await card('LLM application').getByText('First request').waitFor();
    // Over USB, a phone comes from loopback.
    await world.send('/orders?from=phone', { headers: { 'user-agent': 'Mozilla/5.0 (Linux; Android 15; Pixel 9) Chrome/131.0 Mobile Safari/537.36' } });
    await card('Phone').getByText('/orders?from=phone').waitFor();
    // In the network of the host, so does a container.
    const line = (await card('Container').textContent()) ?? '';
    const login = /http_proxy=http:\/\/(container:\w+)@/.exec(line)?.[1] ?? '';
    await world.send('/orders?from=container', { headers: { 'proxy-authorization': `Basic ${Buffer.from(login).toString('base64')}` } });
    await card('Container').getByText('/orders?from=container').waitFor();
    // It stays the first one.
    await world.send('/orders?from=later');
    await world.recorded(6);
    expect(await card('Whole machine').textContent()).toContain('from=machine');
    expect(await card('Terminal').textContent()).toContain('from=terminal');
    await card('Terminal').getByRole('link', { name: 'Show traffic' }).click();
    await page.locator('.drawn .line[data-id]').first().waitFor();
    expect(await page.locator('.drawn .line[data-id]').count()).toBe(2);
    await page.goBack();
  });

  it('start a browser on this machine, which is recorded by its name', async () => {
    await card('Browser').getByText('Waiting').waitFor();
    await card('Browser').getByRole('button', { name: 'Start Chrome' }).click();
    // The first request may be one that the browser makes of its own accord.
    await card('Browser').getByText('First request').waitFor({ timeout: 30_000 });
    await world.recorded(1, 'query:from=chrome');
    expect(readdirSync(join(world.home, 'browser-profiles'))).toHaveLength(1);
    const { flows } = await world.api<{ flows: { user: string }[] }>('/flows?query=query:from=chrome');
    expect(flows[0]?.user).toBe('chrome');
  });
});

it('only a name of an installed browser is started, and only for a request from this machine', async () => {
  const start = (browser: string, headers: Record<string, string> = {}) => fetch(`http://${world.admin}/api/v1/browsers`, {
    method: 'POST', body: JSON.stringify({ browser }), headers: { authorization: `Bearer ${world.token}`, 'content-type': 'application/json', ...headers },
  });
  expect((await start('/bin/sh')).status).toBe(400);
  expect((await start('chrome', { 'x-forwarded-for': '192.0.2.7' })).status).toBe(403);
  expect((await start('chrome', { authorization: 'Bearer wrong' })).status).toBe(401);
});

it('shows a QR code if the proxy can be reached from the network', async () => {
  const open = await World.start({ listenProxy: '0.0.0.0:0' });
  try {
    const { lan_proxy: lan } = await open.api<{ lan_proxy: string | null }>('/setup');
    // A machine without a network has no address to show.
    if (lan) {
      const other = await open.page('/intercept');
      await other.goto(`http://${open.admin}/settings`);
      await other.getByRole('group', { name: 'System' }).getByRole('button', { name: 'iOS' }).click();
      await other.getByRole('img', { name: `QR code of http://${lan}/setup` }).waitFor();
      await other.goto(`http://${open.admin}/intercept`);
      const image = other.getByRole('img', { name: `QR code of http://${lan}/setup` });
      await image.waitFor();
      await expect.poll(() => image.evaluate((i: HTMLImageElement) => i.complete && i.naturalWidth > 0)).toBe(true);
      expect(await fetch(`http://${lan}/setup`).then((r) => r.text())).toContain('ca.mobileconfig');
      expect([open.complaints, open.strays]).toEqual([[], []]);
    }
  } finally {
    await open.stop();
  }
});

it('shows every command whole, and its words in one piece, at every width', async () => {
  for (const width of [400, 640, 1280, 1920]) {
    const other = await world.page('/intercept', { viewport: { width, height: 900 } });
    await card('Terminal').getByText('exec').first().waitFor();
    await other.getByRole('heading', { name: 'Container' }).waitFor();
    for (const fold of await other.locator('summary').all()) await fold.click();
    const wrong = await other.locator('pre').evaluateAll((list) => list.flatMap((pre) => {
      const room = pre.clientWidth - 18 - 16;
      const broken = [...pre.querySelectorAll<HTMLElement>('.word')].filter((span) => span.offsetHeight > 24 && span.offsetWidth < room - 8).map((span) => span.textContent);
      return [...(pre.scrollWidth > pre.clientWidth || pre.scrollHeight > pre.clientHeight ? [pre.textContent] : []), ...broken];
    }));
    expect(wrong, String(width)).toEqual([]);
    await other.context().close();
  }
});

it('a request for media is not one of an LLM application', async () => {
  const fresh = await World.start({ config: () => '[media]\nallow_private = ["127.0.0.1/32"]\n' });
  try {
    const { url } = await fresh.api<{ url: string }>('/media/links', {
      method: 'POST', headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ endpoint: '/proxy/stream', destination_url: `http://${fresh.origin}/film.mp4`, sealed: true }),
    });
    expect((await fetch(url)).status).toBe(200);
    await fresh.recorded(1, 'listener:gateway');
    const other = await fresh.page('/intercept');
    const state = other.getByRole('region', { name: 'LLM application', exact: true }).getByRole('status');
    await state.getByText('Waiting for the first request').waitFor();
    await fresh.ask('/anthropic/v1/messages', { model: 'm', messages: [] }).catch(() => undefined);
    await state.getByText('/v1/messages').waitFor();
  } finally {
    await fresh.stop();
  }
});

it('has no errors, and fits a narrow window', async () => {
  expect([world.complaints, world.strays]).toEqual([[], []]);
  const narrow = await world.page('/intercept', { viewport: { width: 400, height: 800 } });
  await narrow.getByRole('heading', { name: 'Container' }).waitFor();
  const over = await narrow.evaluate(() => {
    const shown = document.querySelector('.shown')!;
    return shown.scrollWidth - shown.clientWidth;
  });
  expect(over).toBeLessThanOrEqual(0);
  await narrow.context().close();
});
