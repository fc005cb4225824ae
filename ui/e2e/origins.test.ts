// The origins of `run --origins`: films that the browser plays, a gRPC service that describes itself, and a shop.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { World } from './world';

let world: World;
let page: Page;

beforeAll(async () => {
  world = await World.start({ options: ['--origins'] });
  page = await world.page('/media');
});

afterAll(async () => {
  await world?.stop();
});

it('the film is played as a file, as HLS and as DASH', async () => {
  const player = page.getByLabel('Player', { exact: true });
  for (const path of ['film.mp4', 'master.m3u8', 'film.mpd']) {
    await page.getByRole('textbox', { name: 'URL' }).fill(`https://cdn.example/${path}`);
    await page.getByRole('button', { name: 'Create and play' }).click();
    await page.getByText('480 × 270').waitFor();
    // Each states how long it is, before it has arrived.
    expect(await player.evaluate((v: HTMLVideoElement) => Math.round(v.duration)), path).toBe(12);
    await expect.poll(() => player.evaluate((v: HTMLVideoElement) => v.currentTime), { message: path }).toBeGreaterThan(0.3);
    expect(await player.evaluate((v: HTMLVideoElement) => v.error), path).toBeNull();
    await expect.poll(() => player.evaluate((v: HTMLVideoElement) => v.getVideoPlaybackQuality().totalVideoFrames), { message: path }).toBeGreaterThan(5);
    await page.keyboard.press('Escape');
    await expect.poll(() => player.count()).toBe(0);
  }
}, 60_000);

it('Compose knows the methods of the shop by reflection', async () => {
  await page.goto(`http://${world.admin}/compose`);
  await page.getByRole('button', { name: 'gRPC', exact: true }).click();
  await page.getByRole('textbox', { name: 'URL', exact: true }).fill('https://shop.example');
  await page.getByRole('button', { name: 'Ask the server' }).click();
  await page.getByText('3 methods in 1 service').waitFor();
  const answer = page.getByRole('region', { name: 'Response' });
  const message = page.getByRole('textbox', { name: 'Message', exact: true });
  const received = async () => (await answer.locator('li.response pre').allTextContents()).map((text) => (JSON.parse(text) as { name: string }).name);
  for (const [method, id, names] of [['Get', 1, ['Lamp']], ['Watch', 2, ['Chair', 'Chair', 'Chair']]] as const) {
    await page.getByLabel('gRPC method').selectOption(method);
    await message.fill(`{"id":${id}}`);
    await page.getByRole('button', { name: 'Send', exact: true }).click();
    await answer.getByText('0 OK').waitFor();
    await expect.poll(received).toEqual(names);
  }
  // A stream in both directions: each message is answered while the call is open.
  await page.getByLabel('gRPC method').selectOption('Follow');
  await message.fill('[{"id":1}]');
  await page.getByRole('button', { name: 'Send', exact: true }).click();
  await expect.poll(received).toEqual(['Lamp']);
  await answer.getByLabel('Message to send').fill('{"id":2}');
  await page.keyboard.press('Enter');
  await expect.poll(received).toEqual(['Lamp', 'Chair']);
  if (process.env['SHOTS']) await page.screenshot({ path: `${process.env['SHOTS']}/grpc.png` });
  expect(await page.getByRole('alert').allTextContents()).toEqual([]);
  await answer.getByRole('button', { name: 'Half-close' }).click();
  await answer.getByText('0 OK').waitFor();
});

it('a misspelled host leads to the one that was recorded', async () => {
  await world.send('/products', { authority: 'shop.example' });
  await page.goto(`http://${world.admin}/?q=host:shop.exmaple`);
  await page.getByRole('button', { name: 'host:shop.example' }).click();
  await page.locator('.drawn .line', { hasText: '/products' }).waitFor();
});

it('has no console errors', () => {
  expect(world.complaints).toEqual([]);
});
