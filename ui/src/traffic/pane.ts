// The tabs of the detail pane.
import type { Flow } from '../lib/types';

export type Tab = 'overview' | 'request' | 'response' | 'messages';

const TABS: Tab[] = ['overview', 'request', 'response', 'messages'];

export function isTab(text: string): text is Tab {
  return (TABS as string[]).includes(text);
}

/** The tabs that a flow has something for. */
export function tabsOf(flow: Flow): Tab[] {
  return TABS.filter((tab) => {
    if (tab === 'request') return flow.request !== undefined;
    if (tab === 'response') return flow.response !== undefined;
    return tab !== 'messages' || flow.messages > 0 || flow.kind === 'websocket';
  });
}
