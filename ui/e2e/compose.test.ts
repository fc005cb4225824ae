// Compose: a request from nothing with variables, its answer, assertions, code, history, collections and `.http` files.
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { violations } from './axe';
import { startRpc } from './rpc';
import { World } from './world';

let world: World;
let page: Page;

beforeAll(async () => {
  world = await World.start();
  page = await world.page('/compose');
});

afterAll(async () => {
  await world?.stop();
});

afterEach(() => {
  expect([world.complaints, world.strays]).toEqual([[], []]);
});

const field = (name: string) => page.getByRole('textbox', { name, exact: true });
const url = () => page.getByRole('textbox', { name: 'URL' }).or(page.getByLabel('URL', { exact: true })).first();
const answer = () => page.getByRole('region', { name: 'Response' });

async function write(method: string, address: string, fields: string, body: string) {
  await page.getByLabel('Method', { exact: true }).fill(method);
  await url().fill(address);
  await field('Header fields').fill(fields);
  await field('Body').fill(body);
}

it('the query and the credentials have fields of their own', async () => {
  await write('GET', `http://${world.origin}/echo?a=1`, 'Accept: */*', '');
  await page.getByRole('tab', { name: /^Query/ }).click();
  await page.getByLabel('Value of parameter 1').fill('1 & 2');
  await page.getByLabel('Name of parameter 2').fill('b');
  await page.getByLabel('Value of parameter 2').fill('x');
  expect(await url().inputValue()).toBe(`http://${world.origin}/echo?a=1%20%26%202&b=x`);
  await page.getByRole('button', { name: 'Remove parameter 2' }).click();
  expect(await url().inputValue()).toBe(`http://${world.origin}/echo?a=1%20%26%202`);
  await page.keyboard.press('Escape');
  await page.getByRole('tab', { name: /^Query/ }).press('ArrowRight');
  await page.getByLabel('Kind').selectOption('bearer');
  await page.getByRole('textbox', { name: 'Token' }).fill('t0ken');
  await page.getByRole('tab', { name: /^Headers/ }).click();
  expect(await field('Header fields').inputValue()).toBe('Accept: */*\nAuthorization: Bearer t0ken');
  // A key in a field of any name is typed letter by letter, and can go into another field.
  await page.getByRole('tab', { name: /^Authorization/ }).click();
  await page.getByLabel('Kind').selectOption('key');
  const [name, key] = [page.getByLabel('Field', { exact: true }), page.getByLabel('Key', { exact: true })];
  for (const one of ['X-Own', 'X-Other']) {
    await name.fill(one);
    await name.blur();
    await key.press('End');
    await key.pressSequentially('abc');
  }
  expect([await page.getByLabel('Kind').inputValue(), await key.inputValue()]).toEqual(['key', 'abcabc']);
  await page.getByRole('tab', { name: /^Headers/ }).click();
  expect(await field('Header fields').inputValue()).toBe('Accept: */*\nX-Other: abcabc');
  await page.getByRole('button', { name: 'Clear' }).click();
});

describe('a request from nothing', () => {
  it('is sent with its variables, recorded, and shown beside the answer', async () => {
    await field('Variables').fill(`base = http://${world.origin}\nname = Zoë`);
    await write('POST', '{{base}}/echo/made?x=1', 'Content-Type: application/json\nX-Test: {{name}}', '{"name":"{{name}}","n":{{$timestamp}}}');
    await page.getByText('Valid JSON').waitFor();
    await page.getByRole('button', { name: 'Format' }).click();
    expect(await field('Body').inputValue()).toBe('{\n  "name": "{{name}}",\n  "n": {{$timestamp}}\n}');
    await url().press('Control+Enter');
    await answer().getByText('200', { exact: true }).waitFor();
    const { flows } = await world.api<{ flows: { id: string; method: string }[] }>('/flows?query=path:/echo/made');
    expect(flows.map((f) => f.method)).toEqual(['POST']);
    const sent = await fetch(`http://${world.admin}/api/v1/flows/${flows[0]!.id}/request/body`, { headers: { authorization: `Bearer ${world.token}` } }).then((r) => r.text());
    expect(JSON.parse(sent)).toMatchObject({ name: 'Zoë' });
    await answer().getByRole('link', { name: 'Show in Traffic' }).click();
    await page.getByRole('tabpanel').waitFor();
    await page.goBack();
    // What was written is still there.
    await expect.poll(() => url().inputValue()).toBe('{{base}}/echo/made?x=1');
  });

  it('with mistakes is not sent, and says what is wrong', async () => {
    await write('GET', '{{nothing}}/x', '', '');
    await page.getByRole('button', { name: 'Send', exact: true }).click();
    await page.getByRole('alert').getByText('no value for {{nothing}}').waitFor();
    await write('GET', `http://${world.origin}/orders`, 'no colon', '');
    await page.getByRole('button', { name: 'Send', exact: true }).click();
    await page.getByRole('alert').getByText('is not a header field').waitFor();
    await write('POST', `http://${world.origin}/orders`, '', '{"a":}');
    await page.getByText(/^Not JSON/).waitFor();
    expect((await world.api<{ count: number }>('/flows/count?query=path:/orders')).count).toBe(0);
  });

  it('is checked by assertions', async () => {
    await write('GET', `http://${world.origin}/orders`, 'Accept: */*', '');
    await page.getByText('Assertions').click();
    const add = page.getByRole('button', { name: 'Add an assertion' });
    await add.click();
    await page.getByLabel('Expected value 1').fill('2xx');
    await add.click();
    await page.getByLabel('Kind of assertion 2').selectOption('json');
    await page.getByLabel('Path', { exact: true }).fill('$.customer.address.city');
    await page.getByLabel('Expected value 2').fill('Paris');
    await page.getByRole('button', { name: 'Send', exact: true }).click();
    await page.getByText('1 of 2 hold').waitFor();
    await page.getByText('$.customer.address.city is Genève, not Paris').waitFor();
    await page.getByLabel('Expected value 2').fill('Genève');
    await page.getByRole('button', { name: 'Send', exact: true }).click();
    await page.getByText('2 of 2 hold').waitFor();
    // The results stay with their assertions.
    await page.getByRole('button', { name: 'Remove assertion 1' }).click();
    await page.getByText('1 of 1 hold').waitFor();
    expect(await page.getByText(/^✓/).allTextContents()).toEqual(['✓ $.customer.address.city is Genève']);
  });

  it('is shown as code', async () => {
    await page.getByRole('button', { name: 'Code…' }).click();
    const dialog = page.getByRole('dialog', { name: 'Code' });
    await expect.poll(() => dialog.locator('pre').textContent()).toContain(`http://${world.origin}/orders`);
    await dialog.getByLabel('Language').selectOption('python');
    await expect.poll(() => dialog.locator('pre').textContent()).toContain('import requests');
    await dialog.getByRole('button', { name: 'Copy' }).click();
    await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toContain('import requests');
    await page.keyboard.press('Escape');
  });
});

describe('kept requests', () => {
  it('the history has them as written, the latest first, and can be cleared', async () => {
    const entries = page.getByRole('complementary').getByRole('listitem');
    await expect.poll(() => entries.allTextContents().then((l) => l.map((t) => t.replace(/\s+/g, '')))).toEqual([
      `GEThttp://${world.origin}/orders`, `GEThttp://${world.origin}/orders`, 'POST{{base}}/echo/made?x=1',
    ]);
    await entries.last().getByRole('button').click();
    await expect.poll(() => url().inputValue()).toBe('{{base}}/echo/made?x=1');
  });

  it('a collection is a file that only its owner may read', async () => {
    await page.getByRole('button', { name: 'New collection' }).click();
    await page.getByLabel('Name of the collection').fill('Shop API');
    await page.keyboard.press('Enter');
    await page.getByLabel('Name of the request').fill('make');
    await page.getByRole('button', { name: 'Save', exact: true }).click();
    await page.getByText('Saved in Shop API').waitFor();
    const file = join(world.home, 'collections', 'Shop API.json');
    expect(statSync(file).mode & 0o777).toBe(0o600);
    const kept = JSON.parse(readFileSync(file, 'utf8')) as { requests: { name: string; url: string }[]; variables: { name: string }[] };
    expect([kept.requests.map((r) => r.name), kept.variables.map((v) => v.name)]).toEqual([['make'], ['base', 'name']]);
    await page.reload();
    await page.getByLabel('Collection', { exact: true }).selectOption('Shop API');
    await page.getByRole('button', { name: /POST make/ }).click();
    await expect.poll(() => url().inputValue()).toBe('{{base}}/echo/made?x=1');
    expect(await field('Variables').inputValue()).toContain('name = Zoë');
    await page.getByRole('button', { name: 'Send', exact: true }).click();
    await answer().getByText('200', { exact: true }).waitFor();
  });

  it('environments of a collection replace its variables, and are kept in its file', async () => {
    await page.getByRole('button', { name: 'New environment' }).click();
    await page.getByLabel('Name of the environment').fill('staging');
    await page.keyboard.press('Enter');
    await field('Variables of staging').fill('name = Stage');
    await field('Variables of staging').blur();
    const file = join(world.home, 'collections', 'Shop API.json');
    const kept = () => JSON.parse(readFileSync(file, 'utf8')) as { environments: unknown; requests: { name: string }[] };
    await expect.poll(() => kept().environments).toEqual([{ name: 'staging', variables: [{ name: 'name', value: 'Stage' }] }]);
    const sentName = async () => {
      await page.getByRole('button', { name: 'Send', exact: true }).click();
      await expect.poll(() => page.getByRole('button', { name: 'Send', exact: true }).isVisible()).toBe(true);
      const { flows } = await world.api<{ flows: { id: string }[] }>('/flows?query=path:/echo/made');
      return fetch(`http://${world.admin}/api/v1/flows/${flows[0]!.id}/request/body`, { headers: { authorization: `Bearer ${world.token}` } }).then(async (r) => ((await r.json()) as { name: string }).name);
    };
    await expect.poll(sentName).toBe('Stage');
    await page.getByLabel('Environment', { exact: true }).selectOption('');
    await expect.poll(sentName).toBe('Zoë');
    await page.getByLabel('Environment', { exact: true }).selectOption('staging');
    await page.reload();
    await page.getByLabel('Collection', { exact: true }).selectOption('Shop API');
    await expect.poll(() => page.getByLabel('Environment', { exact: true }).inputValue()).toBe('staging');
    // Saving a request leaves them alone.
    await page.getByRole('button', { name: /POST make/ }).click();
    await page.getByRole('button', { name: 'Save', exact: true }).click();
    await page.getByText('Saved in Shop API').waitFor();
    expect([kept().environments, kept().requests.length]).toEqual([[{ name: 'staging', variables: [{ name: 'name', value: 'Stage' }] }], 1]);
    const before = kept().environments;
    await page.getByRole('button', { name: 'Delete the environment' }).click();
    await expect.poll(() => kept().environments).toBeUndefined();
    await page.getByRole('button', { name: 'Undo', exact: true }).last().click();
    await expect.poll(() => kept().environments).toEqual(before);
    expect(await field('Variables of staging').inputValue()).toBe('name = Stage');
    await page.getByRole('button', { name: 'Delete the environment' }).click();
    await expect.poll(() => kept().environments).toBeUndefined();
  });

  it('the history is deleted, unless that is undone', async () => {
    const sent = async () => (await world.api<{ requests: unknown[] }>('/compose/history')).requests.length;
    const clear = page.locator('aside').getByRole('button', { name: 'Clear', exact: true });
    const before = await sent();
    expect(before).toBeGreaterThan(0);
    await clear.click();
    await page.getByText('No requests sent yet.').waitFor();
    await page.getByRole('button', { name: 'Undo', exact: true }).last().click();
    await clear.waitFor();
    expect(await sent()).toBe(before);
    await clear.click();
    // What is sent meanwhile is kept.
    await page.getByRole('button', { name: 'Send', exact: true }).click();
    await expect.poll(sent).toBe(1);
    await clear.waitFor();
  });

  it('a change made elsewhere is not overwritten', async () => {
    await page.evaluate(async () => {
      const path = '/api/v1/collections/Shop%20API';
      const read = (await (await fetch(path)).json()) as { revision: string };
      await fetch(path, { method: 'PUT', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ collection: {}, revision: read.revision }) });
    });
    await page.getByRole('button', { name: 'Save', exact: true }).click();
    await page.getByText(/was changed by someone else/).waitFor();
  });

  it('an .http file is imported, and a collection deleted', async () => {
    const text = `@base = http://${world.origin}\n### list\nGET {{base}}/orders\nAccept: text/plain\n\n### make\nPOST {{base}}/echo/http\n\nhello\n`;
    await page.getByLabel('An .http file').setInputFiles({ name: 'shop.http', mimeType: 'text/plain', buffer: Buffer.from(text) });
    await page.getByText('2 requests were imported into shop').waitFor();
    await page.getByRole('button', { name: 'POST make', exact: true }).click();
    await page.getByRole('button', { name: 'Send', exact: true }).click();
    await expect.poll(async () => (await world.api<{ count: number }>('/flows/count?query=path:/echo/http')).count).toBe(1);
    await page.getByRole('complementary').getByRole('button', { name: 'Delete', exact: true }).click();
    const collections = () => page.getByLabel('Collection', { exact: true }).locator('option').allTextContents();
    await expect.poll(collections).toEqual(['No collection', 'Shop API']);
    await page.getByRole('button', { name: 'Undo', exact: true }).last().click();
    await expect.poll(collections).toEqual(['No collection', 'Shop API', 'shop']);
    await page.getByRole('button', { name: 'Delete the request make' }).click();
    const requests = page.getByRole('complementary').getByRole('button', { name: /^(GET list|POST make)$/ });
    await expect.poll(() => requests.count()).toBe(1);
    await page.getByRole('button', { name: 'Undo', exact: true }).last().click();
    await expect.poll(() => requests.allTextContents()).toEqual(['GETlist', 'POSTmake']);
  });
});

it('a request under way is cancelled', async () => {
  await write('GET', `http://${world.origin}/long.mp4`, '', '');
  await page.getByRole('button', { name: 'Send', exact: true }).click();
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await page.getByText('Cancelled; the request may have reached the server').waitFor();
  expect(await page.getByRole('button', { name: 'Send', exact: true }).isVisible()).toBe(true);
  // It does not go on behind the page: the whole response takes six seconds.
  await expect.poll(async () => (await world.api<{ flows: { state: string; error?: string }[] }>('/flows?query=path:/long.mp4')).flows[0]?.state).not.toBe('open');
});

it('an .http file that is dropped on any page is opened here, with its assertions', async () => {
  await page.goto(`http://${world.admin}/overview`);
  const text = `### dropped\n# @assert status == 200\nGET http://${world.origin}/orders\n`;
  const data = await page.evaluateHandle((content) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([content], 'dropped.http'));
    return transfer;
  }, text);
  await page.dispatchEvent('body', 'drop', { dataTransfer: data });
  await page.getByText('1 request was imported into dropped').waitFor();
  await expect.poll(() => url().inputValue()).toBe(`http://${world.origin}/orders`);
  await page.getByRole('button', { name: 'Send', exact: true }).click();
  await page.getByText('1 of 1 hold').waitFor();
  const [saved] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Save as .http' }).click()]);
  expect(readFileSync(await saved.path(), 'utf8')).toBe(text);
});

it('a recorded flow is opened from its dialog, without what was masked', async () => {
  await world.send('/echo/kept?y=1', { method: 'PUT', headers: { 'x-a': '1', authorization: 'Bearer abcdefgh' }, body: 'text' });
  await world.recorded(1, 'path:/echo/kept');
  await page.goto(`http://${world.admin}/?q=path:/echo/kept`);
  await page.locator('.drawn .line[data-id]').first().click();
  await page.getByRole('button', { name: 'Edit and resend' }).click();
  await page.getByRole('button', { name: 'Open in Compose' }).click();
  await expect.poll(() => url().inputValue()).toContain('/echo/kept?y=1');
  expect([await page.getByLabel('Method', { exact: true }).inputValue(), await field('Body').inputValue()]).toEqual(['PUT', 'text']);
  expect(await field('Header fields').inputValue()).toBe('x-a: 1');
  await page.getByText('Left out, as the recording does not have it: authorization').waitFor();
});

describe('a WebSocket', () => {
  const kinds = () => page.getByRole('group', { name: 'Protocol' });
  const message = () => page.getByLabel('Message to send');

  it('is connected, written to and closed, by keyboard', async () => {
    await page.getByRole('button', { name: 'Clear', exact: true }).last().click();
    await kinds().getByRole('button', { name: 'WebSocket' }).press('Enter');
    await url().fill(`ws://${world.origin}/echo-socket`);
    await url().press('Control+Enter');
    // Connected, the message has the focus.
    await expect.poll(() => message().evaluate((node) => node === document.activeElement)).toBe(true);
    await page.keyboard.type('{"hello":');
    await page.keyboard.press('Shift+Enter');
    await page.keyboard.type('"world"}');
    await page.keyboard.press('Enter');
    await answer().getByText('2 messages, live').waitFor();
    expect(await answer().getByRole('listitem').allTextContents()).toEqual([expect.stringContaining('"world"'), expect.stringContaining('"world"')]);
    // What is typed while a message is being sent stays.
    let release = () => {};
    const held = new Promise<void>((done) => (release = done));
    await page.route('**/compose/websocket/*', async (route) => { await held; await route.continue(); }, { times: 1 });
    await message().fill('first');
    await page.keyboard.press('Enter');
    await page.keyboard.type('next');
    release();
    await answer().getByText('4 messages, live').waitFor();
    expect(await message().inputValue()).toBe('next');
    await page.getByLabel('Kind of message').selectOption('binary');
    await message().fill('0xfff');
    await message().press('Enter');
    await page.getByRole('alert').getByText('not bytes in hex').waitFor();
    await message().fill('ff 00');
    await message().press('Enter');
    await answer().getByText('6 messages, live').waitFor();
    await page.getByRole('button', { name: 'Disconnect' }).click();
    await page.getByText('The WebSocket is closed.').waitFor();
    await page.getByRole('button', { name: 'Connect', exact: true }).waitFor();
    const { flows } = await world.api<{ flows: { id: string; kind: string; state: string; messages: number }[] }>('/flows?query=path:/echo-socket');
    expect(flows.map((f) => [f.kind, f.state, f.messages])).toEqual([['websocket', 'complete', 8]]);
  });

  it('that the origin closes says so, and shows what came', async () => {
    await url().fill(`ws://${world.origin}/socket`);
    await page.getByRole('button', { name: 'Connect', exact: true }).click();
    await answer().getByText('hello from the origin').waitFor();
    await page.getByText('The WebSocket is closed.').waitFor();
  });

  it('that is refused shows the response', async () => {
    await url().fill(`ws://${world.origin}/refused-socket`);
    await page.getByRole('button', { name: 'Connect', exact: true }).click();
    await answer().getByText('404', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Connect', exact: true }).waitFor();
  });

  it('of the traffic is opened here, in one step', async () => {
    await world.webSocket('/echo-socket?from=traffic').catch(() => undefined);
    const { flows } = await world.api<{ flows: { id: string }[] }>('/flows?query=path:/socket&limit=1');
    await page.goto(`http://${world.admin}/?id=${flows[0]!.id}`);
    await page.getByRole('button', { name: 'Open in Compose' }).click();
    await expect.poll(() => url().inputValue()).toBe(`ws://${world.origin}/socket`);
    await expect.poll(() => kinds().getByRole('button', { pressed: true }).textContent()).toBe('WebSocket');
  });
});

describe('a gRPC call', () => {
  let rpc: Awaited<ReturnType<typeof startRpc>>;
  beforeAll(async () => { rpc = await startRpc(); });
  afterAll(() => { rpc.server.close(); });
  const body = () => page.getByRole('textbox', { name: 'Message', exact: true });
  const send = () => page.getByRole('button', { name: 'Send', exact: true }).click();
  /** The messages of the server, which are JSON by the schema. */
  const received = async () =>
    (await answer().locator('li.response pre').allTextContents()).map((text) => JSON.parse(text) as Record<string, string>);

  it('knows its methods by reflection, and its messages are JSON', async () => {
    await page.goto(`http://${world.admin}/compose`);
    await page.getByRole('button', { name: 'gRPC', exact: true }).click();
    await url().fill(`http://${rpc.address}`);
    await page.getByRole('button', { name: 'Ask the server' }).click();
    await page.getByText('3 methods in 1 service').waitFor();
    await page.getByLabel('gRPC method').selectOption('Buy');
    expect(await url().inputValue()).toBe(`http://${rpc.address}/shop.v1.Shop/Buy`);
    expect(JSON.parse(await body().inputValue())).toEqual({ orderId: '', state: 'OPEN' });
    await page.getByText('shop.v1.Order → shop.v1.Receipt, unary.').waitFor();
    await body().fill('{"orderId":"o-7","state":"PAID"}');
    await send();
    await answer().getByText('0 OK').waitFor();
    await expect.poll(received).toEqual([{ orderId: 'o-7', total: '1250' }]);
    await page.getByLabel('gRPC method').selectOption('Watch');
    await send();
    await expect.poll(async () => (await received()).map((receipt) => receipt['total'])).toEqual(['1', '2', '3']);
    // It was sent through the proxy's own client, and recorded.
    const { flows } = await world.api<{ flows: { version: string; tags: string[] }[] }>('/flows?query=path:/shop.v1.Shop/Buy');
    expect(flows[0]!.tags).toContain('composed');
  });

  it('that streams both ways takes messages until its half-close, and shows answers as they arrive', async () => {
    await page.getByLabel('gRPC method').selectOption('Trade');
    await page.getByText('client streams, server streams').waitFor();
    await body().fill('[]');
    await send();
    // Open without an answer: this server begins its response with its first message.
    const message = answer().getByLabel('Message to send');
    await expect.poll(() => message.evaluate((node) => node === document.activeElement)).toBe(true);
    expect(JSON.parse(await message.inputValue())).toEqual({ orderId: '', state: 'OPEN' });
    await message.fill('{"orderId":"o-1"}');
    await page.keyboard.press('Enter');
    await expect.poll(received).toEqual([{ orderId: 'o-1', total: '1' }]);
    await answer().getByText('2 messages, live').waitFor();
    expect(await page.getByRole('alert').allTextContents()).toEqual([]);
    await message.fill('{"order":1}');
    await page.keyboard.press('Enter');
    await page.getByRole('alert').getByText('shop.v1.Order has no such field').waitFor();
    await message.fill('[{"orderId":"o-2"},{"orderId":"o-3"}]');
    await answer().getByRole('button', { name: 'Send message' }).click();
    await expect.poll(received).toEqual([{ orderId: 'o-1', total: '1' }, { orderId: 'o-2', total: '2' }, { orderId: 'o-3', total: '3' }]);
    await answer().getByRole('button', { name: 'Half-close' }).click();
    await answer().getByText('0 OK').waitFor();
    await message.waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Send', exact: true }).waitFor();
  });

  it('that is open is cancelled', async () => {
    await send();
    await answer().getByText('Both sides may send messages.').waitFor();
    await page.getByRole('button', { name: 'Cancel the call' }).click();
    await answer().getByText('the client went away').or(answer().getByText('the call was cancelled')).first().waitFor();
    await page.getByRole('button', { name: 'Send', exact: true }).waitFor();
    await page.getByLabel('gRPC method').selectOption('Buy');
  });

  it('that fails has its status and message', async () => {
    await body().fill('{"orderId":"missing"}');
    await send();
    await answer().getByText('5 NOT_FOUND').waitFor();
    await answer().getByText('no such order').waitFor();
  });

  it('with a wrong message is not sent, and says what is wrong', async () => {
    const before = (await world.api<{ count: number }>('/flows/count')).count;
    await body().fill('{"order":1}');
    await send();
    await page.getByRole('alert').getByText('shop.v1.Order has no such field; it has orderId, state').waitFor();
    expect((await world.api<{ count: number }>('/flows/count')).count).toBe(before);
  });

  it('takes schemas from files, or field numbers without one', async () => {
    await page.reload();
    await page.getByRole('button', { name: 'gRPC', exact: true }).click();
    await url().fill(`http://${rpc.address}/shop.v1.Shop/Buy`);
    await body().fill('{"1":"by number"}');
    await send();
    await answer().getByText('1: "by number"').first().waitFor();
    const proto = 'syntax = "proto3"; package shop.v1; message Order { string id = 1; } service Shop { rpc Buy(Order) returns (Order); }';
    await page.getByLabel('Schema files').setInputFiles([{ name: 'shop.proto', mimeType: 'text/plain', buffer: Buffer.from(proto) }]);
    await page.getByText('shop.v1.Order → shop.v1.Order, unary.').waitFor();
    await body().fill('{"id":"by schema"}');
    await send();
    await expect.poll(received).toEqual([{ id: 'by schema', 2: '1250' }]);
    await page.getByLabel('Schema files').setInputFiles([{ name: 'bad.proto', mimeType: 'text/plain', buffer: Buffer.from('message {') }]);
    await page.getByRole('alert').getByText('bad.proto').waitFor();
  });

  it('of the traffic keeps its bytes', async () => {
    const { flows } = await world.api<{ flows: { id: string }[] }>('/flows?query=path:/shop.v1.Shop/Buy&limit=1');
    await page.goto(`http://${world.admin}/compose?flow=${flows[0]!.id}`);
    await expect.poll(() => body().inputValue()).toBe(`0x0a09${Buffer.from('by schema').toString('hex')}`);
  });
});

it('each kind of request is accessible, in every width and both themes', async () => {
  for (const colorScheme of ['light', 'dark'] as const) {
    const other = await world.page('/compose', { colorScheme, viewport: { width: 1280, height: 860 } });
    for (const kind of ['HTTP', 'WebSocket', 'gRPC']) {
      await other.getByRole('button', { name: kind, exact: true }).click();
      expect(await violations(other), `${kind} ${colorScheme}`).toEqual([]);
      for (const width of [400, 640, 1280, 1920]) {
        await other.setViewportSize({ width, height: 860 });
        expect(await other.evaluate(() => document.documentElement.scrollWidth - innerWidth), `${kind} at ${width}`).toBeLessThanOrEqual(0);
      }
    }
    await other.context().close();
  }
});
