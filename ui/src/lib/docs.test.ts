// The documentation that is part of the pages.
import { describe, expect, it } from 'vitest';
import { anchorOf, docsPages } from '../../docs.mjs';
import { GUIDES } from './guides';

const pages = docsPages('../docs');
const html = (name: string) => pages.find((p) => p.name === name)?.html ?? '';

describe('the documentation', () => {
  it('has a page for every page of the UI, with its anchor', () => {
    for (const [page, guide] of Object.entries(GUIDES)) {
      const [name, anchor] = guide.split('#');
      expect(html(name!), page).toContain(anchor ? `id="${anchor}"` : '<h1');
    }
  });

  it('links to its own pages, and no link leads nowhere', () => {
    const names = new Set(pages.map((p) => p.name));
    const links = pages.flatMap((p) => [...p.html.matchAll(/href="\/docs\/([^"#]+\.html)/g)].map((m) => m[1]!));
    expect(links.length).toBeGreaterThan(1000);
    expect(links.filter((name) => !names.has(name))).toEqual([]);
  });

  it('escapes what is text', () => {
    expect(html('reference/cli.html')).not.toMatch(/<(?!\/?(?:[a-z][a-z0-9]*)[\s>]|!)/);
  });
});

it.each([['Let it work: `a_b`', 'let-it-work-a_b'], ['HTTP/2 &amp; TLS', 'http2--tls']])('the anchor of %s', (heading, anchor) => {
  expect(anchorOf(heading)).toBe(anchor);
});
