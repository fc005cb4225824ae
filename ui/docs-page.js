// What the pages of the embedded documentation do in the browser: search over all pages, and copy buttons.

/** How many sections of one page a search shows. */
const MOST_OF_PAGE = 3;

/** The commands of a console block, without their output and prompts: those after `$ `, with what continues them. */
export function commandsOf(block) {
  const commands = [];
  let continues = false;
  for (const line of block.split('\n')) {
    if (line.startsWith('$ ')) commands.push(line.slice(2));
    else if (line.startsWith('> ')) commands.push(line.slice(2));
    else if (continues) commands.push(line);
    else continue;
    continues = line.endsWith('\\');
  }
  return commands.join('\n');
}

/** The sections that contain every word of a query, the best first: words in a heading or a title count most. */
export function search(sections, query, most = 12) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  const rated = [];
  for (const section of sections) {
    const [title, heading, text] = [section.title, section.heading, section.text].map((part) => part.toLowerCase());
    let rate = 0;
    for (const word of words) {
      const inText = text.split(word, 20).length - 1;
      const found = (heading.includes(word) ? 40 : 0) + (title.includes(word) ? 20 : 0) + inText;
      if (found === 0) {
        rate = 0;
        break;
      }
      rate += found;
    }
    // Long lists of everything come after the pages that explain.
    if (rate > 0) rated.push({ section, rate: section.url.includes('/reference/') ? rate / 2 : rate });
  }
  rated.sort((a, b) => b.rate - a.rate);
  const ofPage = new Map();
  const first = rated.filter(({ section: { title } }) => {
    ofPage.set(title, (ofPage.get(title) ?? 0) + 1);
    return ofPage.get(title) <= MOST_OF_PAGE;
  });
  return first.slice(0, most).map(({ section }) => section);
}

/** The text around the first word of a query. */
export function excerptOf(text, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const lower = text.toLowerCase();
  const at = Math.min(...words.map((word) => lower.indexOf(word)).filter((i) => i >= 0), text.length);
  const from = at === text.length ? 0 : Math.max(0, at - 40);
  return `${from > 0 ? '…' : ''}${text.slice(from, from + 120).trim()}…`;
}

/** The sections of a page: what follows each heading. */
function sectionsOf(page, url) {
  page.querySelectorAll('button').forEach((button) => button.remove());
  const title = page.querySelector('h1')?.textContent ?? '';
  const sections = [];
  for (const part of page.querySelector('main')?.children ?? []) {
    if (/^H[123]$/.test(part.tagName)) sections.push({ url: `${url}#${part.id}`, title, heading: part.textContent ?? '', text: '' });
    else if (sections.length > 0) sections.at(-1).text += `${part.textContent?.replace(/\s+/g, ' ') ?? ''} `;
  }
  return sections;
}

function addCopyButtons() {
  if (!navigator.clipboard) return;
  for (const button of document.querySelectorAll('.code button')) {
    const block = button.parentElement?.querySelector('pre');
    button.hidden = false;
    button.addEventListener('click', async () => {
      const text = block?.textContent ?? '';
      const copied = block?.dataset.language === 'console' ? commandsOf(text) : text.trimEnd();
      const done = await navigator.clipboard.writeText(copied).then(() => true, () => false);
      button.textContent = done ? 'Copied' : 'Cannot copy';
      setTimeout(() => { button.textContent = 'Copy'; }, 1500);
    });
  }
}

function addSearch() {
  const input = document.querySelector('nav input');
  const list = document.querySelector('nav .results');
  const status = document.querySelector('nav .status');
  const links = [...document.querySelectorAll('nav a[href^="/docs/"]')];
  /** All sections, read once the search is used. */
  let sections;
  const read = () => {
    sections ??= Promise.all(links.map(async (link) => {
      const url = link.getAttribute('href');
      const response = await fetch(url);
      return response.ok ? sectionsOf(new DOMParser().parseFromString(await response.text(), 'text/html'), url) : [];
    })).then((pages) => pages.flat());
    return sections;
  };
  const show = async () => {
    const query = input.value;
    const found = query.trim() ? search(await read(), query) : [];
    // An answer to an earlier text.
    if (query !== input.value) return;
    list.replaceChildren(...found.map((section) => {
      const [item, link, excerpt] = ['li', 'a', 'small'].map((name) => document.createElement(name));
      link.href = section.url;
      link.textContent = section.heading === section.title ? section.title : `${section.title}: ${section.heading}`;
      excerpt.textContent = excerptOf(section.text, query);
      link.append(excerpt);
      item.append(link);
      return item;
    }));
    status.textContent = query.trim() ? (found.length > 0 ? `${found.length} sections` : 'Nothing found') : '';
    document.querySelector('nav .contents').hidden = query.trim() !== '';
  };
  input.hidden = false;
  input.addEventListener('focus', read);
  input.addEventListener('input', show);
  document.addEventListener('keydown', (event) => {
    if (event.key === '/' && !/^(INPUT|TEXTAREA)$/.test(document.activeElement?.tagName ?? '')) {
      event.preventDefault();
      input.focus();
    } else if (event.key === 'Escape' && document.activeElement === input) {
      input.value = '';
      show();
    } else if (event.key === 'Enter' && document.activeElement === input) {
      list.querySelector('a')?.click();
    } else if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      const stops = [input, ...list.querySelectorAll('a')];
      const at = stops.indexOf(document.activeElement);
      const next = stops[at + (event.key === 'ArrowDown' ? 1 : -1)];
      if (at >= 0 && next) {
        event.preventDefault();
        next.focus();
      }
    }
  });
}

if (typeof document !== 'undefined') {
  // On a narrow screen, the search is above the page and stays in view instead.
  if (matchMedia('(min-width: 801px)').matches) document.querySelector('nav [aria-current]')?.scrollIntoView({ block: 'nearest' });
  addCopyButtons();
  addSearch();
}
