// Loads the initial data of the privacy page.
import { get, send } from '../lib/api';
import type { Findings } from './history';
import type { Policies, Tried } from './types';

/** Sample text with several kinds of findings. */
export const SAMPLE =
  'Dear Dr. Anna Keller, your card 4111 1111 1111 1111 was charged. Questions? anna.keller@example.com or +49 30 901820.';

/** Time ranges of findings, with the length of a bar. */
export const RANGES = [
  { label: '24 hours', since: '24h', span: '1h' },
  { label: '7 days', since: '7d', span: '6h' },
  { label: '30 days', since: '30d', span: '1d' },
] as const;
export type Range = (typeof RANGES)[number];

export const findingsOf = ({ since, span }: Range) => get('/privacy/history', { since, span });

export interface InitialData {
  policies: Policies | null;
  /** Text of the first policy. */
  text: string;
  tried: Tried | null;
  findings: Findings | null;
}

/** Failed parts are null; the card reports the error when it retries. */
export async function loadInitial(): Promise<InitialData> {
  const [policy, findings] = await Promise.allSettled([policyAndTrial(), findingsOf(RANGES[0])]);
  const found = policy.status === 'fulfilled' ? policy.value : { policies: null, text: '', tried: null };
  return { ...found, findings: findings.status === 'fulfilled' ? findings.value : null };
}

async function policyAndTrial(): Promise<Omit<InitialData, 'findings'>> {
  const policies = await get('/privacy/policies');
  const file = policies.policies[0]?.file;
  const text = file ? (await get('/privacy/policies/source', { file })).text : '';
  const tried = await send('POST', '/privacy/try', { text: SAMPLE, policy: text }).catch(() => null);
  return { policies, text, tried: tried && { ...tried, sample: SAMPLE } };
}
