import { describe, expect, it } from 'vitest';
import type { Flow, RequestHead, ResponseHead } from '../lib/types';
import { isEdited, namesOf, shownOf } from './original';

const body = (size: number) => ({ size, kept: size });
const request: RequestHead = { method: 'POST', path: '/sent', version: 'HTTP/1.1', headers: [['X-Tag', 'new']], body: body(4) };
const response: ResponseHead = { status: 200, reason: 'OK', version: 'HTTP/1.1', headers: [['X-Back', 'new']], body: body(7) };
const flow = {
  url: 'https://new.test/sent', request, response,
  original: {
    request: { ...request, method: 'PUT', path: '/came', headers: [['X-Tag', 'old']], body: body(9), url: 'https://old.test/came', body_edited: true },
  },
} as unknown as Flow;

describe('an edited message', () => {
  it('has two versions, each with its line, target, fields and body', () => {
    expect([isEdited(flow, 'request'), isEdited(flow, 'response')]).toEqual([true, false]);
    const [came, sent] = [shownOf(flow, 'request', 'original')!, shownOf(flow, 'request', 'final')!];
    expect([came.line, came.target, came.head.headers, came.body.size]).toEqual(['PUT /came HTTP/1.1', 'https://old.test', [['X-Tag', 'old']], 9]);
    expect([sent.line, sent.target, sent.head.headers, sent.body.size]).toEqual(['POST /sent HTTP/1.1', null, [['X-Tag', 'new']], 4]);
  });

  it('uses the final body if only the head was edited', () => {
    const head = { ...flow, original: { response: { ...response, status: 500, reason: 'No', body: body(0), body_edited: false } } } as Flow;
    const came = shownOf(head, 'response', 'original')!;
    expect([came.line, came.body.size]).toEqual(['HTTP/1.1 500 No', 7]);
  });

  it('is labelled by side', () => {
    expect([namesOf('request').final, namesOf('response').final]).toEqual(['Sent', 'Received']);
  });
});

describe('an unedited message', () => {
  it('is the same in both versions', () => {
    expect(shownOf(flow, 'response', 'original')).toEqual(shownOf(flow, 'response', 'final'));
    expect(shownOf({ ...flow, request: undefined, original: undefined } as unknown as Flow, 'request', 'final')).toBeNull();
  });
});
