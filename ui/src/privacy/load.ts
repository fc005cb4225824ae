// What the cards of the privacy page begin with, asked for together.
import { get, send } from '../lib/api';
import type { Findings } from './history';
import type { Policies, Tried } from './types';

/** A text that holds a bit of everything. */
export const SAMPLE =
  'Dear Dr. Anna Keller, your card 4111 1111 1111 1111 was charged. Questions? anna.keller@example.com or +49 30 901820.';

/** How far back findings are shown, and in steps of what length. */
export const RANGES = [
  { label: '24 hours', since: '24h', span: '1h' },
  { label: '7 days', since: '7d', span: '6h' },
  { label: '30 days', since: '30d', span: '1d' },
] as const;
export type Range = (typeof RANGES)[number];

export const findingsOf = ({ since, span }: Range) => get<Findings>('/privacy/history', { since, span });

export interface InitialData {
  policies: Policies | null;
  /** The text of the first policy. */
  text: string;
  tried: Tried | null;
  findings: Findings | null;
}

/** What cannot be had is missing; each card says so when it asks again. */
export async function loadInitial(): Promise<InitialData> {
  const [policy, findings] = await Promise.allSettled([policyAndTrial(), findingsOf(RANGES[0])]);
  const found = policy.status === 'fulfilled' ? policy.value : { policies: null, text: '', tried: null };
  return { ...found, findings: findings.status === 'fulfilled' ? findings.value : null };
}

async function policyAndTrial(): Promise<Omit<InitialData, 'findings'>> {
  const policies = await get<Policies>('/privacy/policies');
  const file = policies.policies[0]?.file;
  const text = file ? (await get<{ text: string }>('/privacy/policies/source', { file })).text : '';
  const tried = await send<Tried>('POST', '/privacy/try', { text: SAMPLE, policy: text }).catch(() => null);
  return { policies, text, tried: tried && { ...tried, sample: SAMPLE } };
}
