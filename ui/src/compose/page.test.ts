// What closes the WebSocket of the page, and what an answer to that means.
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { Flow } from '../lib/types';
import { isAnyUnsaved } from '../lib/unsaved';
import { blank } from './http';
import { page } from './page.svelte';

vi.mock('../lib/app.svelte', () => ({ loadPref: () => null, savePref: () => undefined }));
vi.mock('../traffic/actions', () => ({}));

const socket = { id: 'f1', kind: 'websocket', state: 'open', response: { status: 101 } } as Flow;
const calls: string[] = [];
let status = 204;

beforeEach(() => {
  calls.length = 0;
  status = 204;
  vi.stubGlobal('fetch', (address: string, { method = 'GET' }: RequestInit = {}) => {
    calls.push(`${method} ${address}`);
    const body = status === 204 ? null : JSON.stringify({ error: { kind: 'x', message: 'as it is' } });
    return Promise.resolve(new Response(body, { status }));
  });
  page.method = 'WEBSOCKET';
  page.url = 'wss://a.test/';
  page.flow = socket;
});
afterEach(() => vi.unstubAllGlobals());

it('another kind of request closes the WebSocket that is open', async () => {
  await page.setKind('websocket');
  expect([calls, page.flow?.id]).toEqual([[], 'f1']);
  await page.setKind('http');
  expect(calls).toEqual(['DELETE /api/v1/compose/websocket/f1']);
  expect([page.kind, page.url, page.flow]).toEqual(['http', 'https://a.test/', null]);
});

it('one that has ended meanwhile counts as closed', async () => {
  status = 404;
  await page.setKind('grpc');
  expect([page.kind, page.flow]).toEqual(['grpc', null]);
});

it('one that cannot be closed stays on the page, with the reason', async () => {
  status = 503;
  await expect(page.setKind('http')).rejects.toThrow('as it is');
  await expect(page.disconnect()).rejects.toThrow('as it is');
  expect([page.kind, page.flow?.id]).toEqual(['websocket', 'f1']);
});

it('the method of a call is that of its URL', () => {
  const method = { path: '/a.B/C', service: 'a.B', name: 'C', input: '', output: '', clientStreams: false, serverStreams: false };
  page.methods = [method];
  page.url = '{{base}}/a.B/C';
  expect(page.grpcMethod?.path).toBe('/a.B/C');
  expect(page.methodOf('http://a.test/a.B/D')).toBe(undefined);
});

it('a message that was filled in or sent is not unsaved, and does not stay for another kind of request', async () => {
  page.kept();
  page.fillMessage('{"orderId":""}');
  expect(isAnyUnsaved()).toBe(false);
  page.message = '{"orderId":"o-1"}';
  expect(isAnyUnsaved()).toBe(true);
  // Another call fills in nothing over it.
  page.fillMessage('{"orderId":""}');
  expect(page.message).toBe('{"orderId":"o-1"}');
  page.message = '';
  expect(isAnyUnsaved()).toBe(false);
  page.message = 'for this WebSocket';
  await page.setKind('websocket');
  expect(page.message).toBe('for this WebSocket');
  await page.setKind('grpc');
  expect(page.message).toBe('');
  page.message = '{}';
  page.set({ ...blank(), method: 'GRPC' });
  expect(page.message).toBe('{}');
  page.set({ ...blank(), method: 'WEBSOCKET' });
  expect(page.message).toBe('');
});

it('variables that were written without a collection come back', () => {
  page.variables = 'base = http://a.test';
  page.library.name = 'one';
  page.library.collection = { variables: [{ name: 'x', value: '1' }], requests: [] };
  page.opened();
  expect(page.variables).toBe('x = 1');
  page.variables = 'x = 2';
  page.library.name = '';
  page.opened();
  expect(page.variables).toBe('base = http://a.test');
});

it('what is typed or opened while a request is saved or sent is not kept with it', () => {
  page.set({ ...blank(), url: 'http://a.test/' });
  const saved = page.asNow();
  page.body = 'typed meanwhile';
  page.kept(saved);
  expect([isAnyUnsaved(), page.isOpen(saved)]).toEqual([true, true]);
  page.kept();
  expect(isAnyUnsaved()).toBe(false);
  const sent = page.asNow();
  page.set({ ...blank(), url: 'http://b.test/' });
  page.kept(sent);
  expect([isAnyUnsaved(), page.isOpen(sent)]).toEqual([false, false]);
});
