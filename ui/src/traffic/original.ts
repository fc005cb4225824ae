// Original and final versions of edited requests and responses.
import { text } from '../lib/format';
import type { Body, Flow, RequestHead, ResponseHead, Side } from '../lib/types';

export type Version = 'original' | 'final';

/** Whether a side was edited and its original recorded. */
export function isEdited(flow: Flow, side: Side): boolean {
  return flow.original?.[side] !== undefined;
}

/** Labels of the two versions. */
export function namesOf(side: Side): Record<Version, string> {
  return { original: 'Original', final: side === 'request' ? 'Sent' : 'Received' };
}

/** Start line, head and body of one version. */
export interface Shown {
  line: string;
  /** Original origin of the request, if it was changed. */
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

/** An unedited body is recorded only once, as the final one. */
function bodyOf(original: { body: Body; body_edited: boolean } | undefined, final: { body: Body } | undefined): Body | undefined {
  return original?.body_edited ? original.body : final?.body;
}

function originOf(url: string): string {
  return url.split('/').slice(0, 3).join('/');
}
