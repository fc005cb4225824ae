// Renders the Markdown of docs/ into pages of the UI, so that the documentation of a binary is that of its version.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, posix, relative, resolve, sep } from 'node:path';
import { Marked } from 'marked';

const STYLE = `
:root { color-scheme: light dark; --text: light-dark(#16211f, #e2e9e8); --soft: light-dark(#566664, #93a3a3); --line: light-dark(#dbe2e2, #2a3236); --sunk: light-dark(#f1f4f4, #0b0f10); --accent: light-dark(#0b6e72, #4fc4c4); }
:root[data-theme='light'] { color-scheme: light; } :root[data-theme='dark'] { color-scheme: dark; }
* { box-sizing: border-box; }
body { margin: 0; display: flex; background: light-dark(#fbfcfc, #101416); color: var(--text); font: 15px/1.6 system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif; }
nav { flex: none; width: 270px; height: 100vh; position: sticky; top: 0; overflow: auto; overflow-wrap: anywhere; padding: 18px; border-right: 1px solid var(--line); background: var(--sunk); font-size: 13px; }
nav ul { list-style: none; margin: 0; padding: 0; } nav h2 { font-size: 12px; margin: 14px 0 4px; color: var(--soft); }
nav a { display: block; padding: 2px 6px; border-radius: 5px; text-decoration: none; color: inherit; }
nav a[aria-current] { background: light-dark(#d9eeee, #14393b); font-weight: 600; }
nav a.app { color: var(--accent); font-weight: 600; margin-bottom: 8px; }
nav input { width: 100%; margin: 2px 0 6px; padding: 5px 8px; border: 1px solid light-dark(#8a9896, #5d6b70); border-radius: 6px; background: light-dark(#fff, #101416); color: inherit; font: inherit; }
nav small { display: block; color: var(--soft); } nav .status { color: var(--soft); min-height: 1.6em; margin: 0; }
main { flex: 1; min-width: 0; max-width: 860px; padding: 22px 34px 90px; overflow-wrap: break-word; }
aside { flex: none; width: 220px; height: 100vh; position: sticky; top: 0; overflow: auto; padding: 26px 14px; font-size: 13px; }
aside h2 { font-size: 12px; margin: 0 0 4px; color: var(--soft); } aside a { display: block; padding: 2px 6px; text-decoration: none; color: inherit; } aside a.inner { padding-left: 18px; color: var(--soft); }
aside a:hover, nav a:hover { color: var(--accent); }
.code { position: relative; } .code button { position: absolute; top: 6px; right: 6px; padding: 2px 8px; border: 1px solid var(--line); border-radius: 6px; background: light-dark(#fff, #101416); color: inherit; font: 12px/1.5 system-ui, sans-serif; cursor: pointer; }
.code button:focus-visible, nav input:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
h1 { font-size: 27px; line-height: 1.25; margin: 0 0 14px; } h2 { font-size: 20px; margin: 34px 0 10px; } h3 { font-size: 16px; margin: 24px 0 8px; }
a { color: var(--accent); } a:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
code, pre { font: 13px/1.5 ui-monospace, 'SF Mono', Menlo, Consolas, monospace; } code { background: var(--sunk); padding: 1px 4px; border-radius: 4px; }
pre { background: var(--sunk); border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px; overflow-x: auto; } pre code { padding: 0; background: none; }
.prompt, .comment { color: var(--soft); } .output { color: var(--soft); } .prompt { user-select: none; } .key { color: var(--accent); } .text { color: light-dark(#8a4100, #e3b27a); }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: 10px 0; } th, td { border: 1px solid var(--line); padding: 5px 10px; text-align: left; vertical-align: top; } th { background: var(--sunk); }
img { max-width: 100%; border-radius: 8px; }
@media (max-width: 1200px) { aside { display: none; } }
@media (max-width: 800px) { body { display: block; } nav { position: static; width: auto; height: auto; max-height: 40vh; border-right: 0; border-bottom: 1px solid var(--line); } main { padding: 18px 16px 60px; } }
`;

/** The title of the first page, and the end of all others. */
const DOCUMENTATION = 'Interflow documentation';

const escaped = (text) => text.replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]);

/** The anchor of a heading, as GitHub makes it. */
export function anchorOf(heading) {
  return heading.replace(/<[^>]+>/g, '').replace(/&[a-z]+;|&#\d+;/g, '').trim().toLowerCase().replace(/[^\p{L}\p{N}\s_-]/gu, '').replace(/\s/g, '-');
}

/** A comment, a text and the name of a setting, in the languages that have them. */
const TOKENS = {
  toml: /(?<comment>#.*)|(?<text>"[^"\n]*"|'[^'\n]*')|(?<key>^[\w.-]+(?= *=)|^\[.*\](?= *$))/gm,
  yaml: /(?<comment>(?<=^|\s)#.*)|(?<text>"[^"\n]*"|'[^'\n]*')|(?<key>(?<=^[ -]*)[\w.-]+(?=:(?:\s|$)))/gm,
  json: /(?<key>"[^"\n]*"(?= *:))|(?<text>"[^"\n]*")/g,
  python: /(?<comment>#.*)|(?<text>"[^"\n]*"|'[^'\n]*')/g,
  sql: /(?<comment>--.*)|(?<text>'[^'\n]*')/g,
  sh: /(?<comment>(?<=^|\s)#.*)|(?<text>"[^"\n]*"|'[^'\n]*')/gm,
};

/** A block of code as HTML: commands apart from their output, and the tokens of its language. */
export function highlighted(text, language) {
  const span = (name, part) => `<span class="${name}">${escaped(part)}</span>`;
  if (language === 'console') {
    let continues = false;
    return text.split('\n').map((line) => {
      const prompt = /^[$>] /.exec(line)?.[0] ?? '';
      const isOutput = !prompt && !continues;
      continues = !isOutput && line.endsWith('\\');
      if (isOutput) return line ? span('output', line) : '';
      return (prompt ? span('prompt', prompt) : '') + escaped(line.slice(prompt.length));
    }).join('\n');
  }
  let html = '';
  let end = 0;
  for (const match of TOKENS[language] ? text.matchAll(TOKENS[language]) : []) {
    const [name, part] = Object.entries(match.groups).find(([, found]) => found !== undefined);
    html += escaped(text.slice(end, match.index)) + span(name, part);
    end = match.index + part.length;
  }
  return html + escaped(text.slice(end));
}

/** The pages that were merged into others, and where their contents are: as the book has them. */
export function docsRedirects(folder) {
  const [, table = ''] = readFileSync(join(folder, 'book.toml'), 'utf8').split('[output.html.redirect]');
  return [...table.matchAll(/^"\/(.+)" = "(.+)"$/gm)].map(([, name, to]) => ({
    name,
    to: `/docs${to}`,
    html: `<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Moved</title><meta http-equiv="refresh" content="0; url=/docs${to}"></head><body><a href="/docs${to}">The page is here now.</a></body></html>\n`,
  }));
}

/** The pages of a folder of Markdown: name and HTML. Links to Markdown lead to pages; what is outside of the folder is text. */
export function docsPages(folder) {
  const root = resolve(folder);
  const files = readdirSync(root, { recursive: true }).map((f) => f.split(sep).join('/')).filter((f) => f.endsWith('.md') && f !== 'SUMMARY.md');
  const summary = readFileSync(join(root, 'SUMMARY.md'), 'utf8');
  return files.map((file) => {
    const here = posix.dirname(file);
    /** A path in the folder, from a link on this page; null for one that leads out of it. */
    const target = (href) => {
      const path = relative(root, resolve(root, here, href)).split(sep).join('/');
      return path.startsWith('..') || !existsSync(join(root, path)) ? null : path;
    };
    const anchors = new Map();
    const outline = [];
    let tables = 0;
    const page = new Marked({
      renderer: {
        heading({ tokens, depth }) {
          const text = this.parser.parseInline(tokens);
          const base = anchorOf(text);
          const seen = anchors.get(base) ?? 0;
          anchors.set(base, seen + 1);
          const id = seen ? `${base}-${seen}` : base;
          if (depth === 2 || depth === 3) outline.push({ id, depth, text: text.replace(/<[^>]+>/g, '') });
          return `<h${depth} id="${id}">${text}</h${depth}>\n`;
        },
        link({ href, tokens }) {
          const text = this.parser.parseInline(tokens);
          if (/^(https?:|mailto:)/.test(href)) return `<a href="${escaped(href)}" rel="noreferrer">${text}</a>`;
          if (href.startsWith('#')) return `<a href="${escaped(href)}">${text}</a>`;
          const [path, anchor] = href.split('#');
          const found = target(path);
          if (!found?.endsWith('.md')) return text;
          return `<a href="/docs/${pageName(found)}${anchor ? `#${escaped(anchor)}` : ''}">${text}</a>`;
        },
        image({ href, text }) {
          const found = target(href);
          // Pictures of the UI add a megabyte to the binary that shows it.
          return found?.endsWith('.svg') ? `<img src="/docs/${found}" alt="${escaped(text)}">` : '';
        },
        // As above.
        html: ({ text }) => (text.startsWith('<picture>') ? '' : text),
        code({ text, lang }) {
          const language = escaped(lang?.split(' ')[0] ?? '');
          // Focusable, because long lines scroll. The button appears where the browser has a clipboard.
          return `<div class="code"><button type="button" hidden>Copy</button><pre tabindex="0" data-language="${language}"><code>${highlighted(text, language)}\n</code></pre></div>\n`;
        },
        table(token) {
          // Landmarks need names of their own.
          tables += 1;
          return `<div class="wide" tabindex="0" role="region" aria-label="Table ${tables}">${Object.getPrototypeOf(this).table.call(this, token)}</div>`;
        },
      },
    });
    const text = readFileSync(join(root, file), 'utf8');
    const title = /^# (.+)$/m.exec(text)?.[1].replace(/`/g, '') ?? file;
    const body = page.parse(text);
    return { name: pageName(file), title, html: frame(title, navigation(summary, file), body, outlineOf(outline)) };
  });
}

/** The pictures that the pages use. */
export function docsImages(folder) {
  const images = readdirSync(join(folder, 'images')).filter((f) => f.endsWith('.svg'));
  return images.map((name) => ({ name: `images/${name}`, source: readFileSync(join(folder, 'images', name)) }));
}

const pageName = (file) => (file === 'README.md' ? 'index.html' : file.replace(/\.md$/, '.html'));

/** The table of contents, from SUMMARY.md: headings, and a link per line. */
function navigation(summary, current) {
  const lines = summary.split('\n').slice(1).map((line) => {
    const heading = /^# (.+)/.exec(line);
    if (heading) return `<h2>${escaped(heading[1])}</h2>`;
    const link = /\[(.+?)\]\((.+?)\)/.exec(line);
    if (!link) return '';
    return `<a href="/docs/${pageName(link[2])}"${link[2] === current ? ' aria-current="page"' : ''}>${escaped(link[1])}</a>`;
  });
  return lines.filter(Boolean).join('\n');
}

/** What a page has, beside it; pages of a few sections need none, and lists of hundreds would need a search. */
function outlineOf(headings) {
  const shown = headings.length > 60 ? headings.filter(({ depth }) => depth === 2) : headings;
  if (shown.length < 3) return '';
  const links = shown.map(({ id, depth, text }) => `<a href="#${escaped(id)}"${depth === 3 ? ' class="inner"' : ''}>${text}</a>`);
  return `<aside aria-label="On this page"><h2>On this page</h2>${links.join('')}</aside>`;
}

function frame(title, contents, body, outline) {
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>${escaped(title === DOCUMENTATION ? title : `${title} · ${DOCUMENTATION}`)}</title>
<link rel="icon" href="/favicon.svg" type="image/svg+xml"><link rel="stylesheet" href="/docs/docs.css"><script src="/theme.js"></script><script type="module" src="/docs/docs.js"></script></head>
<body><nav aria-label="Documentation"><a class="app" href="/">‹ Interflow</a><input type="search" placeholder="Search ( / )" aria-label="Search the documentation" hidden>
<p class="status" role="status"></p><ul class="results"></ul><div class="contents">${contents}</div></nav><main>${body}</main>${outline}</body></html>
`;
}

/** Adds the documentation to a build, below /docs/. */
export function docs(folder) {
  return {
    name: 'docs',
    apply: 'build',
    generateBundle() {
      const emit = (name, source) => this.emitFile({ type: 'asset', fileName: `docs/${name}`, source });
      emit('docs.css', STYLE);
      emit('docs.js', readFileSync(new URL('docs-page.js', import.meta.url)));
      const pages = docsPages(folder);
      for (const { name, html } of pages) emit(name, html);
      for (const { name, html } of docsRedirects(folder)) emit(name, html);
      // The command palette finds pages by their titles.
      emit('pages.json', JSON.stringify(pages.map(({ name, title }) => ({ name, title }))));
      for (const { name, source } of docsImages(folder)) emit(name, source);
    },
  };
}
