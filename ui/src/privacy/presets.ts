// Policy templates.

export interface PolicyPreset {
  name: string;
  about: string;
  /** Top-level keys, inserted above the first `[table]`. */
  head?: string;
  /** Tables, appended at the end. */
  tables?: string;
}

export const POLICY_PRESETS: PolicyPreset[] = [
  { name: 'keep dates and locations', about: 'These kinds are not redacted.', head: 'except = ["date", "location"]' },
  { name: 'secrets only', about: 'Redacts keys and passwords only.', head: 'kinds = ["api-key", "cloud-credential", "token", "jwt", "private-key", "connection-string", "password", "secret"]' },
  { name: 'custom terms', about: 'Confidential names of projects and clients.', head: 'always = ["Project Bluebird", "Contoso"]' },
  { name: 'allowed values', about: 'Well-known addresses that are not redacted.', head: 'never = ["support@example.com"]' },
  { name: 'the last four digits of cards', about: 'All but the last four digits are masked.', tables: '[kind.credit-card]\nstrategy = { use = "last-four" }' },
  { name: 'custom pattern', about: 'Ticket, customer or order numbers.', tables: '[[patterns]]\nname = "ticket"\npattern = "T-[0-9]{6}"\nstrategy = { use = "replace", with = "[ticket]" }' },
  { name: 'higher confidence', about: 'Fewer false positives, more misses; the default is 50.', head: 'confidence = 75' },
];

/** Inserts a template into a policy: top-level keys above the first table, tables at the end. */
export function withPreset(text: string, { head, tables }: Pick<PolicyPreset, 'head' | 'tables'>): string {
  let out = text.trimEnd();
  if (head) {
    const lines = out.split('\n');
    const at = lines.findIndex((l) => /^\s*\[/.test(l));
    if (at < 0) out = out ? `${out}\n${head}` : head;
    else out = [...lines.slice(0, at), head, '', ...lines.slice(at)].join('\n').replace(/\n{3,}/g, '\n\n');
  }
  if (tables) out = out ? `${out}\n\n${tables}` : tables;
  return `${out}\n`;
}
