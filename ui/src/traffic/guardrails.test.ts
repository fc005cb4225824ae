import { describe, expect, it } from 'vitest';
import { findingsOf, isStopped } from './guardrails';

describe('findingsOf', () => {
  it('reads the tags, with what stopped the flow first', () => {
    const found = findingsOf([
      'guardrail:a', 'guardrail-finding:a/input/flagged/0.80/instruction_override; fake_turn',
      'guardrail-finding:b/output/blocked/1.00/category violence/graphic', 'redacted',
    ]);
    expect(found).toEqual([
      { name: 'b', side: 'response', result: 'blocked', score: null, reasons: 'category violence/graphic' },
      { name: 'a', side: 'request', result: 'flagged', score: 0.8, reasons: 'instruction_override; fake_turn' },
    ]);
    expect(found.map(isStopped)).toEqual([true, false]);
  });
});
