// Requests and responses that were edited on their way: as they came in, and as they went on.
import { text } from '../lib/format';
import type { Body, Flow, RequestHead, ResponseHead, Side } from '../lib/types';

/** What is shown of a message that was edited: as it came in, or as it went on. */
export type Version = 'original' | 'final';

/** Whether what went this way was edited, and is recorded as it came in too. */
export function isEdited(flow: Flow, side: Side): boolean {
  return flow.original?.[side] !== undefined;
}

/** The names of the two versions: what the client sent and what left, what the origin sent and what the client received. */
export function namesOf(side: Side): Record<Version, string> {
  return { original: 'Original', final: side === 'request' ? 'Sent' : 'Received' };
}

/** The first line, the head and what is known of the body of one version. */
export interface Shown {
  line: string;
  /** Where the request was to go at first, where it was sent elsewhere. */
  target: string | null;
  head: RequestHead | ResponseHead;
  body: Body;
}

export function shownOf(flow: Flow, side: Side, version: Version): Shown | null {
  const original = version === 'original' ? flow.original : undefined;
  if (side === 'request') {
    const head = original?.request ?? flow.request;
    if (!head) return null;
    const [before, now] = [originOf(original?.request?.url ?? flow.url), originOf(flow.url)];
    return {
      line: `${head.method} ${head.path} ${head.version}`,
      target: before === now ? null : before,
      head,
      body: bodyOf(original?.request, flow.request) ?? head.body,
    };
  }
  const head = original?.response ?? flow.response;
  if (!head) return null;
  return {
    line: `${head.version} ${head.status} ${head.reason ? text(head.reason) : ''}`,
    target: null,
    head,
    body: bodyOf(original?.response, flow.response) ?? head.body,
  };
}

/** A body that was not edited is the one that went on. */
function bodyOf(original: { body: Body; body_edited: boolean } | undefined, final: { body: Body } | undefined): Body | undefined {
  return original?.body_edited ? original.body : final?.body;
}

function originOf(url: string): string {
  return url.split('/').slice(0, 3).join('/');
}
