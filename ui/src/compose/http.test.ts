// Composed requests without a browser: variables, `.http` files, assertions, JSON.
import { describe, expect, it } from 'vitest';
import { blank, check, expand, expandAll, expanded, formatted, httpFile, jsonAt, jsonProblem, parseHttpFile, variablesOf, variablesText, type Assertion } from './http';

describe('variables', () => {
  const list = variablesOf('base = http://a.test\n# a comment\n\ntoken = x=y\nall = {{base}}/{{ token }}\nloop = {{loop}}');
  it('are read and written', () => {
    expect(list[1]).toEqual({ name: 'token', value: 'x=y' });
    expect(variablesOf(variablesText(list))).toEqual(list);
    for (const wrong of ['x', '= y', 'a b = c']) expect(() => variablesOf(wrong)).toThrow('name = value');
  });
  it('are replaced, in values of others too', () => expect(expand('{{all}}?{{ base }}', list)).toBe('http://a.test/x=y?http://a.test'));
  it('without a value are named, and nothing is sent', () => {
    const request = { ...blank(), url: '{{base}}/{{nope}}', body: '{{loop}}{{__proto__}}' };
    expect(() => expanded(request, list)).toThrow('{{nope}}, {{loop}}, {{__proto__}}');
  });
  it('made anew differ', () => expect(expand('{{$guid}}', [])).not.toBe(expand('{{$guid}}', [])));
  it('are replaced everywhere', () => {
    const request = { ...blank(), method: 'POST', url: '{{base}}/', headers: [['X-{{token}}', '{{token}}']] as [string, string][], body: '"{{token}}"' };
    expect(expanded(request, list)).toEqual({ method: 'POST', url: 'http://a.test/', headers: [['X-x=y', 'x=y']], body: '"x=y"' });
    expect(expanded({ ...blank(), url: 'a.test/x' }, []).url).toBe('http://a.test/x');
  });
  it('are replaced in the address of a gRPC server, whose scheme is that of HTTP', () => {
    const base = (url: string, value: string) => expanded({ ...blank(), method: 'GRPC', url }, [{ name: 'base', value }]).url;
    expect([base('{{base}}', 'grpcs://a.test'), base('{{base}}:50051', 'a.test'), base('grpc://a.test', '')]).toEqual(['https://a.test', 'http://a.test:50051', 'http://a.test']);
    expect(() => base('{{nope}}', '')).toThrow('no value for {{nope}}: add it to the variables');
  });
  it('are replaced in texts alone', () => {
    expect(expandAll(list, (value) => [value('{{token}}'), value('b')])).toEqual(['x=y', 'b']);
    expect(() => expandAll(list, (value) => value('{{a}}') + value('{{b}}'))).toThrow('no value for {{a}}, {{b}}: add it to the variables');
  });
});

describe('.http files', () => {
  const file = `@base = https://a.test
# @name first
GET {{base}}/list
    ?a=1
    &b=2
Accept: text/plain
# a comment

###
### Second, with a body
POST https://a.test/x HTTP/1.1
Content-Type: application/json

{"a": 1}

> {% client.test() %}
### third
https://a.test/plain
### file
PUT https://a.test/f

< ./body.bin
`;
  it('are read', () => {
    const read = parseHttpFile(file.replaceAll('\n', '\r\n'));
    expect(read.variables).toEqual([{ name: 'base', value: 'https://a.test' }]);
    expect(read.requests.map((r) => [r.name, r.method, r.url, r.headers.length, r.body])).toEqual([
      ['first', 'GET', '{{base}}/list?a=1&b=2', 1, ''],
      ['Second, with a body', 'POST', 'https://a.test/x', 1, '{"a": 1}'],
      ['third', 'GET', 'https://a.test/plain', 0, ''],
      ['file', 'PUT', 'https://a.test/f', 0, ''],
    ]);
    expect(read.notes.length).toBe(2);
  });
  it('are kept where they are XML or HTML, and named where they are a file', () => {
    const of = (body: string) => parseHttpFile(`POST http://a.test/\n\n${body}\n`);
    for (const body of ['<a><b/></a>', '<?xml version="1.0"?>\n<a/>', '<!doctype html>', '<@']) expect([of(body).requests[0]!.body, of(body).notes]).toEqual([body, []]);
    for (const body of ['< ./file.json', '<@ ./file.json', '<@latin1 ./file.json']) {
      expect([of(body).requests[0]!.body, of(body).notes]).toEqual(['', ['http://a.test/: the body is the file ./file.json, which was not read']]);
    }
  });
  it('are written so that they can be read', () => {
    const { variables, requests } = parseHttpFile(file);
    const again = parseHttpFile(httpFile({ variables, requests }));
    expect(again).toMatchObject({ variables, requests });
  });
  it('keep assertions, as comments that other programs ignore', () => {
    const assertions: Assertion[] = [{ kind: 'status', at: '', expected: '2xx' }, { kind: 'header', at: 'Content-Type', expected: 'a == b' }, { kind: 'json', at: '$["x y"][0]', expected: '"z"' }];
    const written = httpFile({ variables: [], requests: [{ ...blank(), name: 'a', url: 'http://a.test/', assertions }] });
    expect(written).toContain('### a\n# @assert status == 2xx\n# @assert header Content-Type == a == b\n');
    expect(parseHttpFile(written).requests[0]?.assertions).toEqual(assertions);
    expect(parseHttpFile('// @assert nothing\n# @assert json\nGET http://a.test/').requests[0]?.assertions).toEqual([]);
  });
  it('without a request are refused', () => {
    for (const wrong of ['', '###\n###', '# only a comment']) expect(() => parseHttpFile(wrong)).toThrow('no request');
    expect(() => parseHttpFile('GET /\nno colon\n')).toThrow('not a header field');
  });
});

describe('assertions', () => {
  const answer = { status: 201, headers: [['Content-Type', 'application/json'], ['X', '1'], ['x', '2']] as [string, string][], body: '{"items":[{"name":"a","n":1.50,"it\'s":null}],"__proto__":1}' };
  const rule = (kind: Assertion['kind'], at: string, expected: string): Assertion => ({ kind, at, expected });
  it.each([
    [rule('status', '', '201'), true], [rule('status', '', '2xx'), true], [rule('status', '', '200'), false], [rule('status', '', ''), false], [rule('status', '', '.*'), false],
    [rule('header', 'content-type', 'application/json'), true], [rule('header', 'x', '1, 2'), true], [rule('header', 'none', '*'), false], [rule('header', 'X', '*'), true],
    [rule('json', '$.items[0].name', 'a'), true], [rule('json', 'items[0].n', '1.5'), true], [rule('json', '$["items"][0]["it\'s"]', 'null'), true],
    [rule('json', '$.items[1]', '*'), false], [rule('json', '$.toString', '*'), false], [rule('json', '$.items[0]', '{"name":"a","n":1.5,"it\'s":null}'), true], [rule('json', '$..x', '1'), false],
  ])('%o', (assertion, ok) => expect(check(assertion, answer).ok).toBe(ok));
  it('on a body that is not JSON fail', () => expect(check(rule('json', '$.a', '*'), { ...answer, body: '<' })).toEqual({ ok: false, text: 'the body is not JSON' }));
  it('the root is a path', () => expect(jsonAt([1], '$')).toEqual([1]));
});

describe('JSON', () => {
  it('is checked if it should be one', () => {
    expect(jsonProblem('{"a":}', '')).not.toBeNull();
    expect(jsonProblem('a', 'Content-Type: application/json')).not.toBeNull();
    for (const [body, headers] of [['{"a":{{n}},"b":"{{s}}"}', ''], ['a', 'Content-Type: text/plain'], ['', 'content-type: application/json'], ['{{whole}}', '']] as const) {
      expect(jsonProblem(body, headers), body).toBeNull();
    }
  });
  it('is formatted without changing numbers and escapes', () => expect(formatted('[1.0,12345678901234567890,"\\u00e9",{},[]]')).toBe('[\n  1.0,\n  12345678901234567890,\n  "\\u00e9",\n  {},\n  []\n]'));
  it('is formatted with its variables', () => expect(formatted('{"a":{{n}},"b":"{{s}}/{{t}}"}')).toBe('{\n  "a": {{n}},\n  "b": "{{s}}/{{t}}"\n}'));
});
