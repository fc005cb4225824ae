// What a policy may begin with, or go on with: each stands by itself at the end of a file.

export interface PolicyPreset {
  name: string;
  about: string;
  /** Lines that stand above every `[table]`. */
  head?: string;
  /** Tables, which stand at the end. */
  tables?: string;
}

export const POLICY_PRESETS: PolicyPreset[] = [
  { name: 'keep dates and places', about: 'These kinds stay as they are.', head: 'except = ["date", "location"]' },
  { name: 'secrets alone', about: 'Keys and passwords go, everything else stays.', head: 'kinds = ["api-key", "cloud-credential", "token", "jwt", "private-key", "connection-string", "password", "secret"]' },
  { name: 'words of your own', about: 'Names of projects and clients that nobody outside may read.', head: 'always = ["Project Bluebird", "Contoso"]' },
  { name: 'values that stay', about: 'Addresses that everybody knows.', head: 'never = ["support@example.com"]' },
  { name: 'the last four digits of cards', about: 'All but the last four digits are masked.', tables: '[kind.credit-card]\nstrategy = { use = "last-four" }' },
  { name: 'a pattern of your own', about: 'Numbers of tickets, customers, orders.', tables: '[[patterns]]\nname = "ticket"\npattern = "T-[0-9]{6}"\nstrategy = { use = "replace", with = "[ticket]" }' },
  { name: 'only surer findings', about: 'Fewer false alarms, more that slips through; 50 is the rule.', head: 'confidence = 75' },
];

/** A policy's text with a preset in it: plain keys above the first table, tables at the end. */
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
