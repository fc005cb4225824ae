// Markdown as a tree: what is rendered, and that nothing of a message becomes markup or a script.
import { describe, expect, it } from 'vitest';
import { MAX_MARKDOWN } from './longText';
import { decoded, isHeavy, parseMarkdown, safeTarget, type Node } from './markdown';

function kinds(nodes: Node[]): string[] {
  return nodes.flatMap((n) => [n.kind, ...('children' in n ? kinds(n.children) : n.kind === 'list' ? n.items.flatMap((i) => kinds(i.children)) : [])]);
}

const texts = (nodes: Node[]): string => nodes.map((n) => ('text' in n ? n.text : 'children' in n ? texts(n.children) : '')).join('');

describe('Markdown', () => {
  it('has its blocks and spans', () => {
    const tree = parseMarkdown('# T\n\na **b** _c_ ~~d~~ `e`\nf\n\n> q\n\n1. x\n2. y\n\n- [x] done\n\n---\n\n|a|b|\n|-|:-:|\n|1|2|\n\n```rust,ignore\nfn x() {}\n```')!;
    expect(kinds(tree)).toEqual([
      'heading', 'text', 'paragraph', 'text', 'strong', 'text', 'text', 'em', 'text', 'text', 'del', 'text', 'text', 'codespan', 'break', 'text',
      'quote', 'paragraph', 'text', 'list', 'inline', 'text', 'inline', 'text', 'list', 'inline', 'text', 'rule', 'table', 'code',
    ]);
    expect(tree.at(-1)).toEqual({ kind: 'code', text: 'fn x() {}', language: 'rust' });
    expect(tree.find((n) => n.kind === 'table')).toMatchObject({ align: [null, 'center'], rows: [[[{ text: '1' }], [{ text: '2' }]]] });
  });

  it('shows HTML as text', () => {
    for (const html of ['<script>x()</script>', 'a <img src=x onerror=x()> b', '<svg onload="x()">\n\ntext', '<a href="javascript:x()">y</a>', '<!-- c -->']) {
      const tree = parseMarkdown(html)!;
      expect(kinds(tree).every((k) => ['text', 'paragraph', 'inline', 'break'].includes(k)), html).toBe(true);
      expect(texts(tree).replace(/\s+$/, '')).toContain(html.split('\n')[0]);
    }
  });

  it('links to the web and to mail alone', () => {
    for (const bad of ['javascript:x()', 'JavaScript:x()', 'java\tscript:x()', ' data:text/html,x', 'vbscript:x', 'blob:http://a/b', 'file:///etc/passwd', '/settings', '//evil.test', '#x', 'about:blank']) {
      expect(safeTarget(bad), bad).toBeNull();
    }
    expect(['https://a.test/b', 'mailto:a@b.test'].map(safeTarget)).toEqual(['https://a.test/b', 'mailto:a@b.test']);
    const [p] = parseMarkdown('[x](javascript:y) ![z](data:image/png;base64,AA)')!;
    expect(p).toMatchObject({ children: [{ kind: 'link', href: null, target: 'javascript:y' }, {}, { kind: 'image', href: null, alt: 'z' }] });
  });

  it('decodes character references once', () => {
    expect(decoded('&lt;b&gt; &amp;lt; &#65;&#x42; &unknown; &#0; &#xd800;')).toBe('<b> &lt; AB &unknown; \ufffd \ufffd');
    expect(texts(parseMarkdown('`&lt;` &lt;script&gt;')!)).toBe('&lt; <script>');
  });

  it('survives hostile nesting and length', () => {
    for (const part of ['>', '> > ', '[', '*a ', '- ', '1. ', '`', '|', '![[', '_a', 'a**b', '_a\n', '<a ', '~~a ']) {
      for (const length of [200, 50_000]) {
        const text = `${part.repeat(length / part.length)}x`;
        const from = Date.now();
        const tree = parseMarkdown(text);
        if (tree) expect(texts(tree).length, part).toBeGreaterThanOrEqual(0);
        expect(Date.now() - from, part).toBeLessThan(3000);
      }
    }
    expect([isHeavy('_a'.repeat(1000)), isHeavy(`${'_a'.repeat(600)}\n\n`.repeat(9)), isHeavy('```\n' + '_a'.repeat(9000) + '\n```')]).toEqual([false, false, false]);
    expect([isHeavy('_a'.repeat(2000)), isHeavy('_a\n'.repeat(2000)), isHeavy('>'.repeat(60)), isHeavy('- '.repeat(60))]).toEqual([true, true, true, true]);
    expect(parseMarkdown('x'.repeat(MAX_MARKDOWN + 1))).toBeNull();
  });
});
