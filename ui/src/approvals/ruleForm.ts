// The fields of the form for an access rule.
import { SPANS } from './always';
import type { NewRule, Rule, Verdict } from './types';

/** Lists are written with commas or white space between their entries; paths with white space, since they may hold commas. */
export interface RuleForm {
  action: Verdict;
  hosts: string;
  ports: string;
  methods: string;
  paths: string;
  processes: string;
  users: string;
  note: string;
  /** A duration of `SPANS`, or `keep` for the present expiry. */
  span: string;
}

const LISTS = ['hosts', 'ports', 'methods', 'paths', 'processes', 'users'] as const;
/** Names may hold spaces. */
const SEPARATORS: Partial<Record<(typeof LISTS)[number], RegExp>> = { processes: /,/, users: /,/, paths: /,?\s+/ };
const SECONDS: Record<string, number> = { m: 60, h: 3600, d: 86_400 };

export function formOf(rule: Rule | null): RuleForm {
  const lists = Object.fromEntries(LISTS.map((name) => [name, rule?.[name]?.join(', ') ?? ''])) as Pick<RuleForm, (typeof LISTS)[number]>;
  return { action: rule?.action ?? 'allow', ...lists, note: rule?.note ?? '', span: rule?.until ? 'keep' : '' };
}

/** The rule of a form. Conditions that the form does not have stay those of the edited rule. */
export function ruleOf(form: RuleForm, edited: Rule | null, now: number): NewRule {
  const listed = (name: (typeof LISTS)[number]) => form[name].split(SEPARATORS[name] ?? /[\s,]+/).map((one) => one.trim()).filter(Boolean);
  const entries = LISTS.map((name) => [name, listed(name)] as const).filter(([, list]) => list.length > 0);
  const kept = (['agents', 'containers', 'sessions'] as const).flatMap((name) => (edited?.[name]?.length ? [[name, edited[name]] as const] : []));
  const until = form.span === 'keep' ? edited?.until : expiry(form.span, now);
  return {
    action: form.action, ...Object.fromEntries([...entries, ...kept]),
    ...(until ? { until } : {}), ...(form.note.trim() ? { note: form.note.trim() } : {}),
  };
}

function expiry(span: string, now: number): string | undefined {
  if (!SPANS.some(([value]) => value === span) || span === '') return undefined;
  const seconds = parseInt(span, 10) * (SECONDS[span.at(-1) ?? ''] ?? 0);
  return `${new Date(now + seconds * 1000).toISOString().slice(0, 19)}Z`;
}
