// Takes the screenshots of the documentation from `interflow demo`, light and dark, into docs/images.
// Usage: node screenshots.mjs [DIRECTORY]; INTERFLOW_BIN and CHROMIUM name other binaries.
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { chromium } from 'playwright-core';

const target = resolve(process.argv[2] ?? '../docs/images');
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

/** The demo, with one round of its traffic recorded. */
async function startDemo(home) {
  const anywhere = ['proxy', 'gateway', 'admin'].flatMap((port) => [`--listen-${port}`, '127.0.0.1:0']);
  const child = spawn(binary, ['demo', '--keep', home, ...anywhere], { stdio: ['ignore', 'pipe', 'inherit'] });
  let printed = '';
  child.stdout.on('data', (text) => (printed += text));
  const admin = await until('the demo does not start', () => /look +(http:\/\/[^/\s]+)/.exec(printed)?.[1]);
  const headers = { authorization: `Bearer ${readFileSync(join(home, 'admin.token'), 'utf8').trim()}` };
  const api = async (path) => (await fetch(`${admin}/api/v1${path}`, { headers })).json();
  await until('the sub-agent has not answered', async () => {
    const { conversations } = await api('/conversations?query=agent:claude-code');
    return conversations?.[0]?.turns > 1 ? true : undefined;
  });
  return { child, admin, token: headers.authorization.slice('Bearer '.length), api };
}

/** What each picture shows: its address, and a text that appears when the page is complete. */
const PICTURES = {
  traffic: async ({ api }) => {
    const { flows } = await api('/flows?query=tag:found:credit-card&limit=1');
    return { path: `/?id=${flows[0].id}&tab=request`, ready: 'messages' };
  },
  conversations: async ({ api }) => {
    const { conversations } = await api('/conversations?query=agent:claude-code');
    return { path: `/conversations?c=${conversations[0].id}`, ready: 'Bash' };
  },
};

/** Of WebP, in percent: texts stay sharp. */
const QUALITY = 65;
/** The pictures of the README in all, which every visitor loads. */
const MAX_BYTES = 300 * 1024;
let bytes = 0;

const home = mkdtempSync(join(tmpdir(), 'interflow-screenshots-'));
mkdirSync(target, { recursive: true });
const demo = await startDemo(home);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update'],
});
try {
  for (const colorScheme of ['light', 'dark']) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 720 }, deviceScaleFactor: 1.2, colorScheme });
    const page = await context.newPage();
    await page.goto(`${demo.admin}/?token=${demo.token}`);
    for (const [name, arrange] of Object.entries(PICTURES)) {
      const { path, ready } = await arrange(demo);
      await page.goto(demo.admin + path);
      await page.getByText(ready).first().waitFor();
      await page.waitForTimeout(500);
      const file = join(target, `${name}-${colorScheme}.webp`);
      // Playwright writes PNG and JPEG only.
      const session = await context.newCDPSession(page);
      const { data } = await session.send('Page.captureScreenshot', { format: 'webp', quality: QUALITY });
      writeFileSync(file, data, 'base64');
      bytes += statSync(file).size;
      console.log(file);
    }
  }
} finally {
  await browser.close();
  demo.child.kill('SIGINT');
  await new Promise((done) => demo.child.once('exit', done));
  rmSync(home, { recursive: true, force: true });
}
if (bytes > MAX_BYTES) throw new Error(`the pictures have ${bytes} bytes, more than ${MAX_BYTES}: lower their quality`);
