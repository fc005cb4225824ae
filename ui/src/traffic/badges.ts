// The badges of a flow, and the filter term of each.
import { counted } from '../lib/format';
import { term } from '../lib/query';
import type { Summary } from '../lib/types';
import { FINDING } from './guardrails';
import { explanation, shortReason } from './passthrough';

export interface Badge {
  label: string;
  title: string;
  term: string;
  tone: 'plain' | 'info' | 'bad' | 'tag';
}

/** The tag of starred flows. */
export const STARRED = 'starred';

/** Tags set by stages, with label, tooltip and tone. */
const SIGNS: [string, string, string, Badge['tone']][] = [
  ['redacted', 'redacted', 'something was redacted', 'info'],
  ['redact:flagged', 'unredacted', 'the prompt was sent with personal data or secrets that redaction would replace', 'bad'],
  ['held', 'held', 'it was held for a decision', 'info'],
  ['rule-matched', 'rule', 'a rule matched', 'info'],
  ['edited', 'edited', 'edited in transit; the original is recorded too', 'info'],
  ['would_deny', 'would deny', 'it would be denied if access were enforced', 'bad'],
];

/** Prefixes of tags set by stages; the rest of the tag goes into the tooltip. */
const SIGNED: [string, string, (rest: string) => string, Badge['tone']][] = [
  ['refused:', 'refused', (code) => `refused by Interflow: ${code}`, 'bad'],
  ['key:', 'key', (id) => `the virtual key ${id} was used`, 'plain'],
  ['secret:', 'secret', (label) => `the secret ${label} replaced its placeholder`, 'info'],
  ['answer:', 'answer', (kind) => `the response contained ${kind}`, 'bad'],
  ['upstream:', 'upstream', (name) => `the gateway sent it to ${name}`, 'plain'],
  ['guardrail:', 'guardrail', (name) => `the guardrail ${name} found something`, 'info'],
  ['dns:', 'dns', (name) => `the client resolved it as ${name}`, 'plain'],
];

/** Tags that are already represented by a badge or a tab. */
function isKnown(tag: string): boolean {
  return tag === STARRED || tag === 'replay' || tag.startsWith('found:') || tag.startsWith('unredacted:') || tag.startsWith('redact:route:') || tag.startsWith(FINDING) || SIGNS.some(([name]) => name === tag);
}

const badge = (label: string, title: string, flag: string, tone: Badge['tone'] = 'plain'): Badge => ({
  label, title, term: flag, tone,
});

/** What left in a prompt whose findings were only flagged. */
export function unredactedNotice(tags: string[]): string {
  const findings = tags.reduce((sum, tag) => sum + (tag.startsWith('unredacted:') ? Number(tag.slice(11)) || 0 : 0), 0);
  const many = findings === 0 ? 'findings' : findings === 1 ? '1 finding' : `${findings} findings`;
  return `This prompt was sent with ${many} unredacted: the policy only flags findings, and the recording contains them in plain text.`;
}

/** Gap between two badges, and the width of the “+2” behind those that are shown, in pixels. */
const BADGE_GAP = 3;
const REST_WIDTH = 24;
/** Width of a badge, estimated from its text, in pixels. */
const widthOf = (b: Badge) => Math.min(130, Math.max(22, 10 + 6.6 * [...b.label].length));

/** How many badges fit whole into a width in pixels; the first is always shown. */
export function fittingBadges(badges: Badge[], width: number): number {
  let used = 0;
  let n = 0;
  for (const [i, b] of badges.entries()) {
    used += widthOf(b) + (i > 0 ? BADGE_GAP : 0);
    if (used + (i < badges.length - 1 ? BADGE_GAP + REST_WIDTH : 0) <= width) n = i + 1;
  }
  return Math.max(n, Math.min(1, badges.length));
}

export function badgesOf(flow: Summary): Badge[] {
  const found: Badge[] = [];
  if (flow.error) found.push(badge('!', `failed: ${flow.error}`, 'is:error', 'bad'));
  if (flow.passthrough) {
    const why = `passed through without inspection: ${explanation(flow.passthrough)}`;
    found.push(badge(shortReason(flow.passthrough), why, term('passthrough', flow.passthrough), flow.passthrough === 'pinning_bypass' ? 'bad' : 'plain'));
  } else if (flow.kind === 'tunnel') found.push(badge('tun', 'a tunnel: passed through without inspection', 'is:tunnel'));
  else if (flow.scheme === 'https') found.push(badge('tls', 'intercepted TLS', 'is:intercepted'));
  if (flow.kind === 'websocket') found.push(badge('ws', `a WebSocket, ${counted(flow.messages, 'message')}`, 'is:websocket', 'info'));
  if (flow.response_type === 'text/event-stream') found.push(badge('sse', 'an event stream', 'is:sse', 'info'));
  if (flow.request_type?.startsWith('application/grpc')) found.push(badge('grpc', 'a gRPC call', 'is:grpc', 'info'));
  if (flow.parent) found.push(badge('↻', 'replayed by Interflow', 'is:replay', 'info'));
  if (flow.state === 'cut') found.push(badge('cut', 'the recording is incomplete', 'is:cut', 'bad'));
  const tags = flow.tags ?? [];
  if (tags.includes(STARRED)) found.unshift(badge('★', 'starred', term('tag', STARRED), 'tag'));
  for (const [tag, label, title, tone] of SIGNS) {
    if (tags.includes(tag)) found.push(badge(label, title, term('tag', tag), tone));
  }
  const signed = tags.flatMap((tag) => SIGNED.filter(([begins]) => tag.startsWith(begins)).map((sign) => ({ tag, sign })));
  const rest = tags.filter((t) => !isKnown(t) && !signed.some((s) => s.tag === t));
  for (const tag of rest) found.push(badge(tag, `tag ${tag}`, term('tag', tag), 'tag'));
  for (const { tag, sign: [begins, label, words, tone] } of signed) {
    const put = tone === 'bad' ? 'unshift' : 'push';
    if (!found.some((m) => m.label === label)) found[put](badge(label, words(tag.slice(begins.length)), term('tag', tag), tone));
  }
  return found;
}
