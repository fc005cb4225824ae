// The sign of a program.
import { expect, it } from 'vitest';
import { appSign } from './apps';

it('a program has its letter and always the same colour', () => {
  expect(appSign('/usr/bin/curl')).toEqual({ name: 'curl', letter: 'C', hue: 215 });
  expect(appSign('C:\\Programs\\Firefox.exe')).toMatchObject({ name: 'Firefox', letter: 'F', hue: 24 });
  expect(appSign('claude-code')?.hue).toBe(18);
  expect(appSign('my-tool')).toEqual(appSign('my-tool'));
  expect([appSign(undefined), appSign('')]).toEqual([null, null]);
});
