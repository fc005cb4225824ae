// Takes the screenshots of the documentation from `interflow demo`, light and dark, into docs/images.
// Usage: node screenshots.mjs [DIRECTORY] [NAME…]; INTERFLOW_BIN and CHROMIUM name other binaries.
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { chromium } from 'playwright-core';

const target = resolve(process.argv[2] ?? '../docs/images');
const wanted = process.argv.slice(3);
const binary = resolve(process.env.INTERFLOW_BIN ?? '../target/debug/interflow');
if (!existsSync(binary)) throw new Error(`${binary} does not exist: build it, or name one in INTERFLOW_BIN`);

/** Waits until `probe` returns something other than undefined. */
async function until(what, probe) {
  for (let tries = 0; tries < 300; tries += 1) {
    const found = await probe();
    if (found !== undefined) return found;
    await new Promise((done) => setTimeout(done, 200));
  }
  throw new Error(`after a minute: ${what}`);
}

/** Waits for one round of the demo's traffic, and adds teams whose keys were used. */
async function startDemo(home) {
  const instance = await until('the demo does not start', () => (existsSync(join(home, 'instance.json')) ? JSON.parse(readFileSync(join(home, 'instance.json'), 'utf8')) : undefined));
  const token = readFileSync(join(home, 'admin.token'), 'utf8').trim();
  const admin = `http://${instance.admin}`;
  const api = async (path) => (await fetch(`${admin}/api/v1${path}`, { headers: { authorization: `Bearer ${token}` } })).json();
  await until('the sub-agent has not answered', async () => {
    const { conversations } = await api('/conversations?query=agent:claude-code');
    return conversations?.some((c) => c.turns > 1) ? true : undefined;
  });
  await useKeys(home, instance.gateway, api);
  // Other traffic is then the newest again, and the charts have some width.
  await until('the demo stands still', async () => ((await api('/flows/count?query=host:shop.example+path:/socket')).count > 3 ? true : undefined));
  return { admin, token, api };
}

/** What the holders of the keys ask, and the offer that follows many times. */
const QUESTIONS = [
  ['Which of these lamps fit a small office?', 'A lamp of brass, 40 cm, 89.00. '],
  ['Sort these chairs by price.', 'A chair of oak, 45 cm, 120.00. '],
  ['Write a short answer about these rugs.', 'A rug of wool, 2 m, 210.00. '],
];

/** Keys of two teams, with budgets, and some spending. */
async function useKeys(home, gateway, api) {
  const interflow = (...words) => execFileSync(binary, ['--data-dir', home, ...words], { encoding: 'utf8' });
  interflow('keys', 'team', 'add', 'search', '--money-per-month', '100', '--tag', 'cost-centre=17');
  interflow('keys', 'team', 'add', 'support', '--money-per-month', '40');
  const keys = [['ann', 'Ann', 'search', '5'], ['bob', 'Bob', 'search', '2'], ['desk', 'Help desk', 'support', '1']].map(([id, owner, team, money]) =>
    JSON.parse(interflow('keys', 'add', '--id', id, '--owner', owner, '--team', team, '--money-per-day', money, '--expires', '90d', '--format', 'json')).key);
  interflow('reload');
  const ask = (key, model, content) => fetch(`http://${gateway}/openai/v1/chat/completions`, {
    method: 'POST', headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'user-agent': 'OpenAI/Python 1.109.1' },
    body: JSON.stringify({ model, messages: [{ role: 'user', content }] }),
  }).then(async (response) => {
    if (!response.ok) throw new Error(`the gateway answers ${response.status}: ${await response.text()}`);
    await response.arrayBuffer();
  });
  for (const [n, key] of keys.entries()) {
    const [question, offer] = QUESTIONS[n];
    for (let turn = 0; turn < 6 - 2 * n; turn += 1) await ask(key, turn % 2 ? 'gpt-6.1-terra' : 'gpt-6.1-sol', `${question}\n\n${offer.repeat(1200 * (turn + 1))}`);
  }
  await until('the spending is not counted', async () => ((await api('/flows/count?query=tag:key:desk')).count > 0 ? true : undefined));
}

/** What each picture shows: its address, and what is done until the page is complete. */
const PICTURES = {
  traffic: {
    path: async ({ api }) => `/?id=${(await api('/flows?query=tag:found:credit-card&limit=1')).flows[0].id}&tab=request`,
    ready: (page) => page.getByText('messages').first().waitFor(),
  },
  flow: {
    path: async ({ api }) => `/?q=host:shop.example&id=${(await api('/flows?query=host:shop.example+path:/products+tag:edited+is:intercepted&limit=1')).flows[0].id}&tab=exchange`,
    ready: (page) => page.getByText('shop.example').first().waitFor(),
  },
  conversations: {
    path: async ({ api }) => `/conversations?c=${(await api('/conversations?query=agent:claude-code')).conversations.find((c) => c.turns > 1).id}`,
    ready: (page) => page.getByText('Bash').first().waitFor(),
  },
  approvals: {
    path: async ({ api }) => until('no request waits', async () => (JSON.stringify(await api('/pending')).includes('warehouse') ? '/approvals' : undefined)),
    ready: (page) => page.getByText('Details').first().click(),
  },
  rules: { path: () => '/rules', ready: (page) => page.getByText('mark what failed').nth(1).waitFor() },
  privacy: { path: () => '/privacy', ready: (page) => page.getByText('EMAIL_').first().waitFor() },
  keys: { path: () => '/keys', ready: (page) => page.getByText('Help desk').first().waitFor() },
  overview: { path: () => '/overview', ready: (page) => page.getByText('Tokens by model').first().waitFor() },
  compose: {
    path: () => '/compose',
    ready: async (page) => {
      await page.getByPlaceholder('https://example.com/path').fill('https://shop.example/products');
      await page.getByRole('button', { name: 'Send', exact: true }).click();
      await page.getByText('200').first().waitFor();
    },
  },
};

/** Of WebP, in percent: texts stay sharp. */
const QUALITY = 65;
/** Of one picture. */
const MAX_BYTES = 90 * 1024;

/** A picture of a page that has come to rest: two that are equal. Figures of live traffic may never rest. */
async function picture(session) {
  // Playwright writes PNG and JPEG only.
  const take = async () => (await session.send('Page.captureScreenshot', { format: 'webp', quality: QUALITY })).data;
  let last = await take();
  for (let tries = 0; tries < 15; tries += 1) {
    const next = await take();
    if (next === last) break;
    last = next;
  }
  return last;
}

// Its path is in the pictures. A folder of its own, since it is deleted at the end.
const folder = mkdtempSync(join(tmpdir(), 'demo-'));
const home = join(folder, 'interflow');
mkdirSync(target, { recursive: true });
let demo;
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update'],
});
// Without addresses it takes the default ones where they are free: pictures then show what the documentation says.
const child = spawn(binary, ['demo', '--no-open', '--keep', home], { stdio: ['ignore', 'ignore', 'inherit'] });
try {
  demo = await startDemo(home);
  for (const colorScheme of ['light', 'dark']) {
    const context = await browser.newContext({
      viewport: { width: 1280, height: 720 }, deviceScaleFactor: 1.2, colorScheme, reducedMotion: 'reduce', locale: 'en-GB', timezoneId: 'UTC',
    });
    const page = await context.newPage();
    const session = await context.newCDPSession(page);
    await page.goto(`${demo.admin}/?token=${demo.token}`);
    for (const [name, { path, ready }] of Object.entries(PICTURES)) {
      if (wanted.length > 0 && !wanted.includes(name)) continue;
      await page.goto(demo.admin + (await path(demo)));
      await ready(page);
      const file = join(target, `${name}-${colorScheme}.webp`);
      const bytes = Buffer.from(await picture(session), 'base64');
      writeFileSync(file, bytes);
      console.log(`${file}: ${Math.round(bytes.length / 1024)} kB`);
      if (bytes.length > MAX_BYTES) throw new Error(`${file} has ${bytes.length} bytes, more than ${MAX_BYTES}: lower the quality`);
    }
  }
} finally {
  await browser.close();
  child.kill('SIGKILL');
  await new Promise((done) => child.once('exit', done));
  rmSync(folder, { recursive: true, force: true });
}
