// The phases of a flow as parts of a waterfall bar.
import { duration } from '../lib/format';
import { timingSpans } from '../lib/timings';
import type { Timings } from '../lib/types';

export type Phase = 'blocked' | 'dns' | 'connect' | 'tls' | 'send' | 'wait' | 'receive';

export interface PhaseSpan {
  phase: Phase;
  /** Percent of the whole bar. */
  from: number;
  width: number;
}

const PHASES: Record<string, Phase> = {
  'queued for a connection': 'blocked', DNS: 'dns', connect: 'connect', TLS: 'tls', 'send request': 'send', 'wait (TTFB)': 'wait', 'receive response': 'receive',
};

/** The upstream phases in order; empty if nothing is known about them. */
export function phasesOf(timings: Timings | undefined, total: number): PhaseSpan[] {
  if (!timings || total <= 0) return [];
  const percent = (n: number) => Math.max(0, Math.min(100, (n / total) * 100));
  return timingSpans(timings, total).flatMap((span) => {
    const phase = span.side === 'upstream' ? PHASES[span.label] : undefined;
    if (!phase || span.length <= 0) return [];
    const from = percent(span.start);
    return [{ phase, from, width: Math.min(percent(span.length), 100 - from) }];
  });
}

/** The phases in words, for a tooltip. */
export function phaseText(timings: Timings | undefined, total: number): string {
  const spans = timings ? timingSpans(timings, total).filter((s) => s.side === 'upstream' && s.length > 0) : [];
  return [`total ${duration(total)}`, ...spans.map((s) => `${s.label} ${duration(s.length)}`)].join('\n');
}

/** Width of a bar in percent among others up to `longest`. Square roots keep short ones visible beside long ones. */
export function barWidth(total: number, longest: number): number {
  return longest <= 0 ? 0 : Math.sqrt(Math.max(0, total) / longest) * 100;
}
