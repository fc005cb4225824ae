// The documentation that is part of the pages.
import { describe, expect, it } from 'vitest';
import { anchorOf, docsPages, docsRedirects, highlighted } from '../../docs.mjs';
import { commandsOf, excerptOf, search } from '../../docs-page.js';
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
    const anchors = pages.flatMap((p) => [...p.html.matchAll(/href="(?:\/docs\/([^"#]+))?#([^"]+)"/g)].map(([, name = p.name, id]) => ({ name, id, from: p.name })));
    expect(anchors.length).toBeGreaterThan(1000);
    expect(anchors.filter(({ name, id }) => !html(name).includes(`id="${id}"`))).toEqual([]);
  });

  it('leads from each page that was merged to a section that exists', () => {
    const redirects = docsRedirects('../docs');
    expect(redirects.length).toBeGreaterThan(10);
    for (const { name, to, html: redirect } of redirects) {
      const [page, anchor] = to.slice('/docs/'.length).split('#');
      expect(html(name), `${name} is a page`).toBe('');
      expect(html(page!), `${name} leads to ${to}`).toContain(`id="${anchor}"`);
      expect(redirect).toContain(`url=${to}"`);
    }
  });

  it('escapes what is text', () => {
    expect(html('reference/cli.html')).not.toMatch(/<(?!\/?(?:[a-z][a-z0-9]*)[\s>]|!)/);
  });
});

it('copies the commands of a console block without prompts and output', () => {
  const block = "$ cat > a.json <<'END'\n> {\"a\": 1}\n> END\n$ curl -s \\\n    http://localhost/\nthe answer\n$ interflow status\nrunning\n";
  expect(commandsOf(block)).toBe("cat > a.json <<'END'\n{\"a\": 1}\nEND\ncurl -s \\\n    http://localhost/\ninterflow status");
});

it.each([
  ['console', '$ a \\\n  b\nc <d>', '<span class="prompt">$ </span>a \\\n  b\n<span class="output">c &lt;d&gt;</span>'],
  ['toml', '[a]\nb = "<c>" # d', '<span class="key">[a]</span>\n<span class="key">b</span> = <span class="text">&quot;&lt;c&gt;&quot;</span> <span class="comment"># d</span>'],
  ['yaml', '- when: host:a # b', '- <span class="key">when</span>: host:a <span class="comment"># b</span>'],
  ['json', '{"a": "b"}', '{<span class="key">&quot;a&quot;</span>: <span class="text">&quot;b&quot;</span>}'],
  ['text', 'a <b> "c"', 'a &lt;b&gt; &quot;c&quot;'],
])('the tokens of %s', (language, text, expected) => {
  expect(highlighted(text, language)).toBe(expected);
});

it('finds the sections with all words, those with a word in their heading first', () => {
  const section = (url: string, heading: string, text: string) => ({ url, title: 'Page', heading, text });
  const sections = [
    section('/docs/a.html#x', 'Other', 'a budget is a limit, and a budget again'),
    section('/docs/a.html#y', 'Budgets', 'how much a key may spend'),
    section('/docs/reference/b.html#z', 'All keys', 'budget limit'),
  ];
  expect(search(sections, 'budget').map((s) => s.url)).toEqual(['/docs/a.html#y', '/docs/a.html#x', '/docs/reference/b.html#z']);
  expect(search(sections, 'Budget LIMIT').map((s) => s.heading)).toEqual(['Other', 'All keys']);
  expect(search(sections, 'absent')).toEqual([]);
  expect(search(sections, '  ')).toEqual([]);
  expect(excerptOf('a'.repeat(100) + ' needle in hay', 'needle')).toMatch(/^….*needle in hay…$/);
});

it.each([['Let it work: `a_b`', 'let-it-work-a_b'], ['HTTP/2 &amp; TLS', 'http2--tls']])('the anchor of %s', (heading, anchor) => {
  expect(anchorOf(heading)).toBe(anchor);
});
