// Query and credentials of a composed request.
import { describe, expect, it } from 'vitest';
import { authOf, queryOf, withAuth, withQuery } from './parts';

describe('the query of a URL', () => {
  it('is read and written back', () => {
    expect(queryOf('http://a.test/x?a=1&b=%C3%A9+f&c&=d#e?f')).toEqual([
      { name: 'a', value: '1' }, { name: 'b', value: 'é f' }, { name: 'c', value: '' }, { name: '', value: 'd' },
    ]);
    expect(withQuery('http://a.test/x?old=1#e', [{ name: 'a b', value: '1&2' }, { name: '', value: '' }])).toBe('http://a.test/x?a%20b=1%262#e');
    expect(withQuery('a.test?x=1', [])).toBe('a.test');
    expect(queryOf('a.test')).toEqual([]);
  });

  it('keeps variables as they are written', () => {
    const url = withQuery('{{base}}/x', [{ name: 'q', value: 'a {{term}}/b' }]);
    expect(url).toBe('{{base}}/x?q=a%20{{term}}%2Fb');
    expect(queryOf(url)).toEqual([{ name: 'q', value: 'a {{term}}/b' }]);
  });

  it('is what was written where it is not encoded well', () => expect(queryOf('a?b=%zz')).toEqual([{ name: 'b', value: '%zz' }]));
});

describe('credentials', () => {
  const fields = 'Accept: */*\nauthorization: Bearer old\nX-Test: 1';

  it('replace those in the header fields', () => {
    expect(withAuth(fields, { kind: 'basic', user: 'ann', password: 'p:é' })).toBe('Accept: */*\nX-Test: 1\nAuthorization: Basic YW5uOnA6w6k=');
    expect(withAuth(fields, { kind: 'key', field: '', key: 'k' })).toBe('Accept: */*\nX-Test: 1\nX-Api-Key: k');
    expect(withAuth(fields, { kind: 'none' })).toBe('Accept: */*\nX-Test: 1');
    expect(withAuth(fields, { kind: 'basic', user: '', password: '' })).toBe('Accept: */*\nX-Test: 1');
    expect(withAuth('', { kind: 'bearer', token: '' })).toBe('');
    expect(withAuth('', { kind: 'bearer', token: '{{token}}' })).toBe('Authorization: Bearer {{token}}');
  });

  it('replace those before in a field that is not known to carry any', () => {
    const key = (field: string, text: string) => ({ kind: 'key', field, key: text }) as const;
    const own = withAuth('Accept: */*', key('X-Own', 'k'), key('X-Own', ''));
    expect(own).toBe('Accept: */*\nX-Own: k');
    const longer = withAuth(own, key('X-Own', 'ke'), key('X-Own', 'k'));
    expect(longer).toBe('Accept: */*\nX-Own: ke');
    expect(withAuth(longer, key('X-Other', 'ke'), key('X-Own', 'ke'))).toBe('Accept: */*\nX-Other: ke');
    expect(withAuth(longer, { kind: 'none' }, key('X-Own', 'ke'))).toBe('Accept: */*');
    // Not another field of this name.
    expect(withAuth('X-Own: mine', key('X-Own', 'k'), key('X-Own', ''))).toBe('X-Own: mine\nX-Own: k');
  });

  it('are read from the header fields', () => {
    expect(authOf(fields)).toEqual({ kind: 'bearer', token: 'old' });
    expect(authOf('Authorization: Basic YW5uOnA6w6k=')).toEqual({ kind: 'basic', user: 'ann', password: 'p:é' });
    expect(authOf('x-goog-api-key: k')).toEqual({ kind: 'key', field: 'x-goog-api-key', key: 'k' });
    expect(authOf('Accept: */*')).toEqual({ kind: 'none' });
    expect(authOf('Authorization: Basic ***')).toEqual({ kind: 'basic', user: '', password: '' });
  });
});
