// The API's types of approvals, generated from docs/reference/openapi.json, and their texts.
import type { ApprovalRule, ModeView, PendingClient, ResolvedQuestion, RuleSpecInput } from '../lib/api.gen';
import { countdown, left } from '../lib/time';

export type {
  ApprovalAction as Verdict, ApprovalMode as Mode, ApprovalRule as Rule, ApprovalsView as Approvals,
  ResolvedQuestion as Answered, RuleSpecInput as NewRule, SecretView as Secret, SessionView as Session,
  SuggestedRule as Suggestion,
} from '../lib/api.gen';

/** The conditions of a rule in one line. */
export function describeRule(rule: Omit<RuleSpecInput, 'until' | 'note'>): string {
  const part = (name: string, list: string[] | undefined) => (list && list.length > 0 ? [`${name} ${list.join(', ')}`] : []);
  const parts = [
    ...part('to', rule.hosts), ...part('port', rule.ports), ...part('method', rule.methods), ...part('path', rule.paths),
    ...part('by', rule.users), ...part('agent', rule.agents), ...part('process', rule.processes),
    ...part('container', rule.containers), ...part('session', rule.sessions),
  ];
  return parts.join(' · ') || 'everything';
}

/** The client in one line. */
export function whoOf(client: Omit<PendingClient, 'container'>): string {
  const parts = [client.process, client.user, ...client.sessions].filter((p): p is string => !!p);
  return parts.length > 0 ? `${parts.join(', ')} (${client.address})` : client.address;
}

/** Remaining time of a temporary mode. */
export function leftOfMode(state: Omit<ModeView, 'mode'>, now: number): string {
  if (state.mode_is_configured) return '';
  return state.mode_until === null ? 'until Interflow stops' : `for ${countdown(left(state.mode_until, now))} more`;
}

/** How a request was decided. */
export function endOf(answer: ResolvedQuestion, rules: ApprovalRule[]): string {
  const rule = rules.find((r) => r.id === answer.by);
  const words: Record<string, string> = { once: 'decided once', timeout: 'timed out', gone: 'client disconnected', mode: 'by the mode' };
  return words[answer.by] ?? (rule ? `by the rule “${describeRule(rule)}”` : 'by a rule');
}
