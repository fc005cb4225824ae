// The sign of a program.
import { expect, it } from 'vitest';
import { appSign, programOfAgent } from './apps';

it('a program has its letter and always the same colour', () => {
  expect(appSign('/usr/bin/curl')).toEqual({ name: 'curl', letter: 'C', hue: 215 });
  expect(appSign('C:\\Programs\\Firefox.exe')).toMatchObject({ name: 'Firefox', letter: 'F', hue: 24 });
  expect(appSign('claude-code')?.hue).toBe(18);
  expect(appSign('my-tool')).toEqual(appSign('my-tool'));
  expect([appSign(undefined), appSign('')]).toEqual([null, null]);
});

it('a User-Agent names a browser, or its first product', () => {
  const chrome = 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36';
  const named: [string, string][] = [
    [chrome, 'Chrome'], [`${chrome} Edg/141.0.0.0`, 'Edge'], ['Mozilla/5.0 (Macintosh) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.1 Safari/605.1.15', 'Safari'],
    ['Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0', 'Firefox'], ['curl/8.5.0', 'curl'], ['claude-cli/2.0.14 (external, cli)', 'claude-cli'],
    ['python-requests/2.32', 'python-requests'], ['Go-http-client/1.1', 'Go-http-client'], ['node', 'node'], ['MyApp/7 CFNetwork/1.0 Darwin/24', 'MyApp'],
    ['Mozilla/5.0', ''], ['<script>', ''], ['', ''],
  ];
  for (const [agent, name] of named) expect(programOfAgent(agent), agent).toBe(name);
  expect(programOfAgent(undefined)).toBe('');
});
