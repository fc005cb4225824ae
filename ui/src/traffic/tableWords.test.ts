// The words of the table as filters.
import { describe, expect, it } from 'vitest';
import { hostTerm, methodCell, statusCell, typeCell } from './tableWords';

describe('a cell of the table', () => {
  it('is filtered by the word that it shows', () => {
    expect(methodCell({ kind: 'tunnel' } as never)).toEqual({ text: 'TUNNEL', term: 'method:TUNNEL' });
    expect(methodCell({ kind: 'http', method: 'GET' } as never).term).toBe('method:GET');
    expect(statusCell({ kind: 'http', state: 'failed', error: 'timeout' } as never)).toEqual({ text: 'ERR', term: 'status:ERR' });
    expect(statusCell({ kind: 'http', state: 'open' } as never).term).toBe('is:open');
    expect(typeCell({ kind: 'websocket' } as never).term).toBe('type:ws');
    expect(typeCell({ kind: 'http', response_type: 'text/event-stream' } as never)).toEqual({ text: 'sse', term: 'type:sse' });
    expect(typeCell({ kind: 'http', response_type: 'application/vnd.apple.mpegurl' } as never).term).toBe('type:hls');
    expect(typeCell({ kind: 'http', response_type: 'text/html' } as never).term).toBe('resp.type:text/html');
  });

  it('names the whole host, which without a dot needs the sign of equality', () => {
    expect(hostTerm('api.shop.test:443')).toBe('host:api.shop.test');
    expect(hostTerm('shop:80')).toBe('host:=shop');
    expect(hostTerm('[::1]:80')).toBe('host:"::1"');
  });
});
