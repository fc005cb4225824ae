// Where the documentation that is part of the UI describes each page.
import type { Page } from './app.svelte';

export const GUIDES: Record<Page, string> = {
  traffic: 'guides/web-ui.html#traffic', conversations: 'guides/conversations.html', approvals: 'guides/approvals.html', rules: 'guides/rules.html',
  privacy: 'guides/redaction.html', media: 'guides/media.html', overview: 'guides/web-ui.html', settings: 'operations/running.html#change-settings',
  compose: 'guides/web-ui.html#traffic', intercept: 'guides/interception.html', keys: 'guides/virtual-keys.html',
};

/** The address of a page's guide, or of the contents of the documentation. */
export function guideOf(page?: Page): string {
  return `/docs/${page ? GUIDES[page] : 'index.html'}`;
}
