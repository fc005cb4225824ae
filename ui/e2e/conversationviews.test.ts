// Views of conversations: Markdown of hostile messages, search, trace, comparison, notes, and thousands of messages.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { HOSTILE } from './origin';
import { World } from './world';

let world: World;
let page: Page;

const user = (text: string) => ({ role: 'user', content: text });
const assistant = (content: unknown) => ({ role: 'assistant', content });

async function ask(session: string, messages: unknown[], system?: string): Promise<void> {
  const body = JSON.stringify({ model: 'claude-sonnet-4-5', max_tokens: 500, system, messages, metadata: { user_id: `u_session_${session}` }, tools: [{ name: 'Bash' }] });
  const headers = { 'content-type': 'application/json', 'user-agent': 'claude-cli/2.0.1 (external, cli)' };
  expect(await world.send('/v1/messages', { method: 'POST', headers, body })).toBe(200);
}

const MARKDOWN = `# Title

Some **bold** text, \`code\`, and a [harmless link](https://example.com/page?x=1).

| name | n |
|---|--:|
| a | 1 |

\`\`\`rust
fn main() { let s = "text"; }
\`\`\`

${HOSTILE}

[click me](javascript:window.pwned=1) [data](data:text/html,<script>opener.pwned=1</script>) <javascript:window.pwned=1>
![picture](https://evil.test/track.png "onerror=window.pwned=1") ![inline](data:image/svg+xml,<svg/onload=window.pwned=1>)

<iframe srcdoc="<script>parent.pwned=1</script>"></iframe><a href="javascript:window.pwned=1">a</a>
<style>body{display:none}</style><base href="https://evil.test/"><form action="https://evil.test/"><button>go</button></form>

&lt;script&gt;window.pwned=1&lt;/script&gt;
`;

beforeAll(async () => {
  world = await World.start();
  await ask('hostile', [user('show me Markdown'), assistant(MARKDOWN), user('thanks, now the needle in the haystack')]);
  const tools = assistant([
    { type: 'tool_use', id: 'x1', name: 'Bash', input: { command: 'make test' } },
    { type: 'tool_use', id: 'x2', name: 'Read', input: { file_path: 'a.rs' } },
  ]);
  const results = { role: 'user', content: [
    { type: 'tool_result', tool_use_id: 'x1', content: 'failed: no such table', is_error: true }, { type: 'tool_result', tool_use_id: 'x2', content: 'fn a() {}' },
  ] };
  await ask('first', [user('fix the login of the shop')]);
  await ask('first', [user('fix the login of the shop'), tools, results]);
  await ask('second', [user('please fix the login page of the shop')]);
  await ask('cached', [user('count to two')], 'Be brief. Now: 10:00:01');
  await ask('cached', [user('count to two'), assistant('one, two'), user('and on')], 'Be brief. Now: 10:05:12, cold');
  page = await world.page('/conversations');
  for (const title of ['count to two', 'show me Markdown', 'fix the login of the shop', 'please fix the login page']) await page.locator('.entry', { hasText: title }).waitFor();
});

afterAll(async () => {
  await world?.stop();
});

describe('Markdown', () => {
  it('is rendered, coloured and copied', async () => {
    await page.locator('.entry', { hasText: 'show me Markdown' }).click();
    await page.locator('.markdown').getByRole('heading', { name: 'Title' }).waitFor();
    await page.locator('.markdown strong', { hasText: 'bold' }).waitFor();
    await page.locator('.block .keyword', { hasText: 'fn' }).waitFor();
    await page.getByRole('button', { name: 'Copy the code' }).click();
    expect(await page.evaluate(() => navigator.clipboard.readText())).toBe('fn main() { let s = "text"; }');
  });

  it('of a hostile message runs nothing, loads nothing, and shows where links lead', async () => {
    const markdown = page.locator('.markdown', { hasText: 'harmless link' });
    const text = (await markdown.textContent())!;
    for (const words of ['<script>window.pwned=1</script>', '<iframe srcdoc', '<style>body', 'javascript:window.pwned=1', '(not loaded)', 'https://evil.test/track.png']) expect(text).toContain(words);
    expect(await markdown.locator('script, img, svg, iframe, style, base, form, object, embed, video').count()).toBe(0);
    const links = await markdown.locator('a').evaluateAll((all) => all.map((a) => [a.getAttribute('href'), a.getAttribute('rel'), a.getAttribute('target')]));
    expect(links).toEqual([['https://example.com/page?x=1', 'noopener noreferrer', '_blank'], ['https://evil.test/track.png', 'noopener noreferrer', '_blank']]);
    expect(text).toContain('harmless link (https://example.com/page?x=1)');
    await markdown.getByText('click me').click();
    const attributes = await markdown.evaluate((root) => [...root.querySelectorAll('*')].flatMap((e) => e.getAttributeNames()).filter((n) => n.startsWith('on') || n === 'srcdoc'));
    expect(attributes).toEqual([]);
    expect(await page.evaluate('window.pwned')).toBeUndefined();
    expect([world.strays, world.complaints]).toEqual([[], []]);
  });

  it('is switched off, which is remembered', async () => {
    await page.getByRole('button', { name: 'Markdown', exact: true }).click();
    await page.getByText('# Title').waitFor();
    expect(await page.locator('.markdown').count()).toBe(0);
    await page.reload();
    await page.getByText('# Title').waitFor();
    await page.getByRole('button', { name: 'Markdown', exact: true }).click();
    await page.locator('.markdown').first().waitFor();
  });
});

describe('the prompt cache', () => {
  it('shows where it broke, and what to change', async () => {
    await page.locator('.entry', { hasText: 'count to two' }).click();
    const toggle = page.getByRole('button', { name: 'Prompt cache' });
    await toggle.press('Enter');
    const report = page.getByRole('region', { name: 'Prompt cache' });
    await report.getByText('The cache broke once').waitFor();
    const text = (await report.textContent())!;
    for (const words of ['2.05k tokens', 'out of the system prompt', 'Turn 2: a date, time or id', '− Be brief. Now: 10:00:01', '+ Be brief. Now: 10:05:12']) expect(text).toContain(words);
    await toggle.press('Enter');
    expect(await report.count()).toBe(0);
    expect(world.complaints).toEqual([]);
  });
});

describe('the search', () => {
  it('finds texts of messages, marks them and goes from hit to hit', async () => {
    const all = await page.locator('.entry').count();
    await page.getByLabel('Search in messages').fill('NEEDLE');
    await page.getByLabel('Search in messages').press('Enter');
    await expect.poll(() => page.locator('.entry').count()).toBe(1);
    expect(await page.locator('.excerpt mark').textContent()).toBe('needle');
    await page.locator('.excerpt').click();
    await page.locator('.item.sought', { hasText: 'needle in the haystack' }).waitFor();
    expect(await page.locator('.find [role=status]').textContent()).toBe('1 of 1');
    await expect.poll(() => page.evaluate(() => CSS.highlights.get('found-current')?.size)).toBe(1);
    const find = page.getByLabel('Find in this conversation');
    await find.fill('window.pwned');
    await find.press('Enter');
    expect(await page.locator('.find [role=status]').textContent()).toMatch(/^1 of [1-9]/);
    expect(new URL(page.url()).searchParams.get('s')).toBe('NEEDLE');
    await page.getByRole('button', { name: 'Show all' }).click();
    await expect.poll(() => page.locator('.entry').count()).toBe(all);
  });

  it('finds what tools returned, and expands it', async () => {
    await page.getByLabel('Search in messages').fill('no such table');
    await page.getByLabel('Search in messages').press('Enter');
    await page.locator('.excerpt').first().click();
    await page.locator('.item.sought .tool[open]').getByText('failed: no such table').waitFor();
    await page.getByRole('button', { name: 'Show all' }).click();
  });
});

describe('the trace', () => {
  it('shows requests and tools on one axis, and leads to messages', async () => {
    await page.locator('.entry', { hasText: 'fix the login of the shop' }).click();
    await page.getByRole('tab', { name: 'Trace' }).click();
    const tree = page.getByRole('tree', { name: 'Trace' });
    await expect.poll(() => tree.getByRole('treeitem').count()).toBe(4);
    await tree.getByRole('treeitem', { name: /^Bash make test/ }).waitFor();
    expect(await tree.getByRole('treeitem', { name: /^claude-sonnet-4-5 .* [mµ]?s$/ }).count()).toBe(2);
    expect(await tree.getByTitle(/claude-sonnet-4-5.*first token after.*input 2\.15k, output 20/).count()).toBe(2);
    expect(await page.getByLabel('Where the time went').textContent()).toMatch(/Whole time .*Model .*%.*Tools .*Waiting .*Parallel work/s);
    await tree.focus();
    await page.keyboard.press('End');
    await page.keyboard.press('+');
    expect(await tree.evaluate((box) => box.scrollWidth > box.clientWidth)).toBe(true);
    await page.keyboard.press('0');
    await page.keyboard.press('Home');
    await page.getByText('Open the flow').waitFor();
    expect(new URL(page.url()).searchParams.get('tab')).toBe('trace');
    await tree.getByRole('treeitem', { name: /^Bash/ }).click();
    await page.keyboard.press('Enter');
    await page.locator('.item.sought .tool', { hasText: 'Bash' }).waitFor();
  });
});

describe('the comparison', () => {
  it('shows figures with their change, tools and aligned turns', async () => {
    await page.locator('.entry', { hasText: 'fix the login of the shop' }).hover();
    await page.getByLabel('Choose fix the login of the shop for comparison').check();
    await page.locator('.entry', { hasText: 'please fix the login page' }).click();
    await page.locator('h2').first().click();
    await page.keyboard.press('x');
    await page.keyboard.press('c');
    const figures = page.getByRole('table', { name: 'Figures' });
    await figures.waitFor();
    expect(await figures.getByRole('row', { name: /^Requests 2 1/ }).textContent()).toContain('−1 (−50 %)');
    expect(await page.getByRole('table', { name: 'Tools' }).getByRole('row', { name: /^Bash/ }).textContent()).toMatch(/1\s*\(1 failed\)/);
    const diff = page.getByRole('group', { name: 'Differences of the prompts' });
    expect([await diff.locator('.before').textContent(), await diff.locator('.after').textContent()]).toEqual(['−fix the login of the shop', '+please fix the login page of the shop']);
    await page.reload();
    await figures.waitFor();
    await page.getByRole('button', { name: 'Clear' }).click();
  });
});

describe('notes', () => {
  it('are written on a conversation and on a message, found, and exported', async () => {
    await page.locator('.entry', { hasText: 'please fix' }).click();
    await page.getByRole('button', { name: 'Star the conversation' }).click();
    await page.getByRole('button', { name: 'Comment on the conversation' }).click();
    await page.getByLabel('Comment', { exact: true }).fill(`slower than before ${HOSTILE}`);
    await page.getByLabel('Tags to add').fill('regression, later');
    await page.getByLabel('Tags to add').press('Control+Enter');
    await page.locator('.comment', { hasText: 'slower than before <script>' }).waitFor();
    const item = page.locator('.item').first();
    await item.hover();
    await item.getByRole('button', { name: 'Comment on the message' }).click();
    await page.getByLabel('Comment', { exact: true }).fill('a good prompt');
    await page.getByRole('button', { name: 'Save', exact: true }).click();
    await item.locator('.comment', { hasText: 'a good prompt' }).waitFor();
    const box = page.getByLabel('Filter conversations');
    await box.fill('tag:starred comment:"good prompt"');
    await box.press('Enter');
    await expect.poll(() => page.locator('.entry').count()).toBe(1);
    expect(await page.locator('.entry').textContent()).toMatch(/★.*2 comments.*regression.*later/s);
    const id = new URL(page.url()).searchParams.get('c');
    const response = await fetch(`http://${world.admin}/api/v1/conversations/${id}/export`, { headers: { authorization: `Bearer ${world.token}` } });
    expect(await response.text()).toContain('> **Note:** a good prompt');
    await page.getByRole('button', { name: 'Unstar the conversation' }).click();
    await expect.poll(() => page.locator('.entry').count(), { timeout: 8000 }).toBe(0);
    await box.fill('');
    await box.press('Enter');
    expect(await page.evaluate('window.pwned')).toBeUndefined();
  });

  it('that are half written stay while their tags change', async () => {
    await page.locator('.entry', { hasText: 'please fix' }).click();
    await page.getByRole('button', { name: 'Comment on the conversation' }).click();
    const comment = page.getByLabel('Comment', { exact: true });
    await expect.poll(() => comment.inputValue()).toContain('slower than before');
    await comment.fill('half written');
    const tag = page.getByRole('button', { name: 'Remove the tag later' });
    await tag.click();
    await expect.poll(() => tag.count()).toBe(0);
    expect(await comment.inputValue()).toBe('half written');
    await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  });
});

it('five thousand messages stay fluent', async () => {
  const messages: unknown[] = [user('a very long piece of work')];
  for (let n = 0; n < 2500; n += 1) {
    messages.push(assistant([{ type: 'text', text: `step **${n}**` }, { type: 'tool_use', id: `l${n}`, name: 'Bash', input: { command: `run ${n}` } }]));
    messages.push({ role: 'user', content: [{ type: 'tool_result', tool_use_id: `l${n}`, content: `done ${n}` }] });
  }
  await ask('long', messages);
  await expect.poll(() => page.locator('.entry', { hasText: 'a very long piece' }).count(), { timeout: 20_000 }).toBe(1);
  const drawn = async (act: () => Promise<unknown>) => {
    const from = Date.now();
    await act();
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    return Date.now() - from;
  };
  await page.locator('.entry', { hasText: 'a very long piece' }).click();
  await page.getByText('2499**').waitFor();
  expect(await page.locator('.item').count()).toBeLessThanOrEqual(300);
  expect(await drawn(() => page.keyboard.press('e'))).toBeLessThan(3000);
  expect(await drawn(() => page.keyboard.press('e'))).toBeLessThan(3000);
  expect(await drawn(() => page.getByRole('button', { name: /earlier messages/ }).click())).toBeLessThan(3000);
  await page.getByLabel('Find in this conversation').fill('run 7');
  expect(await drawn(() => page.getByLabel('Find in this conversation').press('Enter'))).toBeLessThan(3000);
  await page.locator('.item.sought').waitFor();
  expect(await page.locator('.item').count()).toBeLessThanOrEqual(600);
  expect(await drawn(() => page.getByRole('tab', { name: 'Trace' }).click())).toBeLessThan(3000);
  await expect.poll(() => page.getByText('2501 rows').count()).toBe(1);
  expect(await page.getByRole('treeitem').count()).toBeLessThan(100);
}, 120_000);

it.each([[400, 800], [1920, 1080]])('fits a window of %i pixels in both themes', async (width, height) => {
  await page.setViewportSize({ width, height });
  for (const path of ['/conversations', '/conversations?view=totals']) {
    await page.goto(`http://${world.admin}${path}`);
    await page.locator('.entry, .cards').first().waitFor();
    expect(await page.evaluate(() => document.documentElement.scrollWidth), path).toBeLessThanOrEqual(width);
  }
});

it('the pages make no external requests and log no errors', () => {
  expect([world.strays, world.complaints]).toEqual([[], []]);
});
