// Looking up which flows are LLM calls.
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { FlowConversation as Call } from './api.gen';
import { mayCall, Models } from './models.svelte';
import type { UnixMicros } from './time';
import type { Summary } from './types';

const flow = (id: string, more: Partial<Summary> = {}): Summary => ({
  id, state: 'complete', kind: 'http', started: 0 as UnixMicros, duration: 1, scheme: 'https', authority: 'a:443', version: 'HTTP/2',
  client: null, request_size: 9, response_size: 9, messages: 0, method: 'POST', path: '/v1/messages',
  response_type: 'application/json', ...more,
});
const call: Call = { conversation: 'c', agent: 'a', model: 'm', input: 1, output: 2, cost: null };

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe('LLM calls', () => {
  it('are looked up for plausible flows only', () => {
    expect(mayCall(flow('1'))).toBe(true);
    expect(mayCall(flow('1', { method: 'GET' }))).toBe(false);
    expect(mayCall(flow('1', { state: 'open' }))).toBe(false);
    expect(mayCall(flow('1', { path: '/x', response_type: 'image/png' }))).toBe(false);
    expect(mayCall(flow('1', { path: '/x', response_type: 'text/event-stream' }))).toBe(true);
    expect(mayCall(flow('1', { kind: 'websocket', path: '/v1/responses', method: 'GET' }))).toBe(true);
  });

  it('are batched, cached, and given up eventually', async () => {
    const asked: string[][] = [];
    const models = new Models((ids) => {
      asked.push(ids);
      return Promise.resolve(ids.includes('1') ? { 1: call } : {});
    });
    models.want([flow('1'), flow('2'), undefined]);
    models.want([flow('1')]);
    await vi.advanceTimersByTimeAsync(200);
    expect(asked).toEqual([['1', '2']]);
    expect(models.calls.get('1')).toEqual(call);
    for (let i = 0; i < 6; i += 1) {
      models.want([flow('1'), flow('2')]);
      await vi.advanceTimersByTimeAsync(2000);
    }
    expect(asked.slice(1)).toEqual([['2'], ['2']]);
  });
});
