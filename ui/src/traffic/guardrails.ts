// What guardrails found in a flow, from its tags.

export interface GuardrailFinding {
  name: string;
  /** `request` or `response`. */
  side: string;
  /** What was done: `flagged`, `masked`, `allowed`, `denied`, `blocked`, or `failed`. */
  result: string;
  /** From 0 to 1; null where it has no meaning. */
  score: number | null;
  reasons: string;
}

export const FINDING = 'guardrail-finding:';

const WORDS: Record<string, string> = {
  flagged: 'flagged', masked: 'masked', allowed: 'allowed by a person', denied: 'denied', blocked: 'blocked', failed: 'not checked: the service failed',
};

/** The findings, those that stopped something first. */
export function findingsOf(tags: string[]): GuardrailFinding[] {
  const found = tags.filter((t) => t.startsWith(FINDING)).map((tag) => {
    // NAME/input/flagged/0.80/reasons; only reasons may contain a slash.
    const [name = '', side = '', result = '', score = '', ...reasons] = tag.slice(FINDING.length).split('/');
    const value = Number(score);
    return { name, side: side === 'output' ? 'response' : 'request', result, score: value > 0 && value < 1 ? value : null, reasons: reasons.join('/') };
  });
  const order = ['blocked', 'denied', 'failed'];
  const rank = (f: GuardrailFinding) => (order.includes(f.result) ? order.indexOf(f.result) : order.length);
  return found.sort((a, b) => rank(a) - rank(b));
}

export function isStopped(finding: GuardrailFinding): boolean {
  return finding.result === 'blocked' || finding.result === 'denied';
}

export function wordsOfResult(result: string): string {
  return WORDS[result] ?? result;
}
