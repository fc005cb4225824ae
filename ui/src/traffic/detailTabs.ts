// The tabs of the detail pane.
import { loadPref, savePref } from '../lib/prefs';
import type { Flow } from '../lib/types';

export type Tab = 'overview' | 'exchange' | 'request' | 'response' | 'messages' | 'rules' | 'privacy' | 'tls' | 'raw';

/** In display order. */
export const TABS: Tab[] = ['overview', 'exchange', 'request', 'response', 'messages', 'rules', 'privacy', 'tls', 'raw'];

/** The tabs of the digit keys. */
export const NUMBERED: Tab[] = TABS.filter((tab) => tab !== 'exchange');

export const TITLES: Record<Tab, string> = {
  overview: 'Overview', exchange: 'Exchange', request: 'Request', response: 'Response', messages: 'Messages', rules: 'Rules', privacy: 'Privacy',
  tls: 'TLS', raw: 'Raw',
};

export function isTab(text: string): text is Tab {
  return (TABS as string[]).includes(text);
}

/** Where the tab that was chosen last is kept. */
const CHOSEN = 'flow.tab';

/** The tab that a flow opens on: the one that was chosen last. */
export function chosenTab(): Tab {
  const chosen = loadPref(CHOSEN) ?? '';
  return isTab(chosen) ? chosen : 'exchange';
}

export function keepTab(tab: Tab): void {
  savePref(CHOSEN, tab);
}

/** Tags set by redaction, virtual keys and secrets. */
export function isPrivate(tag: string): boolean {
  return /^(redacted$|redact:|unredacted:|found:|answer:|refused:|secret:|key:)/.test(tag);
}

/** The tabs available for a flow. */
export function tabsOf(flow: Flow): Tab[] {
  return TABS.filter((tab) => {
    if (tab === 'request' || tab === 'exchange') return flow.request !== undefined;
    if (tab === 'response') return flow.response !== undefined;
    if (tab === 'messages') return flow.messages > 0 || flow.kind === 'websocket';
    if (tab === 'privacy') return (flow.tags ?? []).some(isPrivate);
    if (tab === 'tls') return !!(flow.client.tls ?? flow.upstream?.tls ?? flow.client.ja4h ?? flow.client.http2);
    if (tab === 'rules' || tab === 'raw') return flow.request !== undefined;
    return true;
  });
}
