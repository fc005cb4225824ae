// Drives Chromium through cases (JSON lines on stdin: name, player, url, seconds, …): time must advance, pictures be decoded, and no error
// come. Prints `passed` or `failed` lines. node browser.mjs PAGE-URL, with CHROMIUM and a folder of node modules in PLAYERS.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

const require = createRequire(`${process.env.PLAYERS}/package.json`);
const { chromium } = require('playwright-core');
const cases = readFileSync(0, 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line));
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: ['--no-sandbox', '--autoplay-policy=no-user-gesture-required', '--disable-gpu', '--mute-audio'],
});
let failed = 0;
for (const one of cases) {
  const page = await browser.newPage();
  const said = [];
  page.on('pageerror', (e) => said.push(`page: ${e.message}`));
  let seen;
  try {
    await page.goto(process.argv[2]);
    seen = await page.evaluate((c) => play(c), one);
  } catch (e) {
    seen = { errors: [String(e)], advanced: 0, frames: 0, sound: 0 };
  }
  const wrong = [...said, ...seen.errors];
  if (seen.advanced < one.seconds) wrong.push(`time advanced ${seen.advanced.toFixed(1)} s of ${one.seconds}, to ${(seen.at || 0).toFixed(1)}`);
  if (!one.soundOnly && seen.frames < 10) wrong.push(`${seen.frames} pictures`);
  if (one.sound && !seen.sound) wrong.push('no sound');
  if (one.low && !(seen.latency < one.low)) wrong.push(`${seen.latency} s behind`);
  if (wrong.length) failed += 1;
  console.log(wrong.length ? `failed   ${one.name}: ${wrong.join('; ')}` : `passed   ${one.name}`);
  await page.close();
}
await browser.close();
process.exit(failed ? 1 : 0);
