// Finding placeholders in bodies.
import { describe, expect, it } from 'vitest';
import { MAX_PLACEHOLDERS, placeholdersIn } from './placeholders';

describe('locations of placeholders', () => {
  it.each([
    ['{"messages":[{"content":"I am {{{REDACTED-person}}}"}]}', ['person $.messages[0].content 5']],
    ['{"a b":["x","mail EMAIL_ADDRESS_k3m2p9x0!"]}', ['email-address $["a b"][1] 5']],
    ['no JSON: {{{REDACTED-ssn}}} and {{{REDACTED-ssn}}}', ['ssn  9', 'ssn  32']],
    ['{"n":1,"none":"MAX_VALUES_here and A_B_options1"}', []],
    ['', []],
  ])('of %s', (body, places) => {
    expect(placeholdersIn(body).map((p) => `${p.kind} ${p.path} ${p.at}`)).toEqual(places);
  });

  it('are bounded in number and depth', () => {
    expect(placeholdersIn('{{{REDACTED-x}}} '.repeat(5000)).length).toBe(MAX_PLACEHOLDERS);
    expect(placeholdersIn(`${'['.repeat(300)}"{{{REDACTED-x}}}"${']'.repeat(300)}`)).toEqual([]);
  });
});
