// Rule templates: YAML list items, indented by two spaces.

export interface Preset {
  name: string;
  about: string;
  text: string;
}

const rule = (name: string, about: string, ...lines: string[]): Preset => ({
  name, about, text: [`  - name: ${name}`, ...lines.map((l) => `    ${l}`), ''].join('\n'),
});

export const PRESETS: Preset[] = [
  rule('block trackers', 'Rejects requests to analytics and advertising hosts.',
    'when:', '  host: ["*.doubleclick.net", "*.google-analytics.com", "*.googletagmanager.com", "*.scorecardresearch.com"]', 'then: block'),
  rule('mock a response', 'Responds in place of the origin.',
    'when: host:api.example.com path:/v1/status', 'then:', '  - answer:', '      status: 200', '      headers: { Content-Type: application/json }', '      body: \'{"state":"fine"}\''),
  rule('send to a local server', 'Sends the same requests to a server under development.',
    'when: host:api.example.com', 'then:', '  - map_remote: http://127.0.0.1:3000'),
  rule('redirect', 'Sends the client to another address.',
    'when: host:old.example.com', 'then:', '  - redirect: "https://new.example.com${path}"'),
  rule('add a header', 'Adds a header field to requests.',
    'when: host:api.example.com', 'then:', '  - set_request_header: { X-Debug: "${flow.id}" }'),
  rule('disable caching', 'Every request reaches the origin.',
    'when: host:*.example.com', 'then: anticache'),
  rule('slow network', 'Adds 500 ms of latency and limits the rate to 50 kB/s.',
    'when: host:*.example.com', 'then:', '  - delay: 500ms', '  - throttle: 50KB'),
  rule('fail one in ten', 'Tests how a client handles 503.',
    'when:', '  host: api.example.com', '  chance: 0.1', 'then:', '  - answer: { status: 503, body: try again }'),
  rule('hold for review', 'Stops a request until you decide on this page.',
    'when: host:api.example.com method:(POST OR PUT OR DELETE)', 'then: hold'),
  rule('tag errors', 'Tags failed responses, so that they can be found later.',
    'when: status:>=500', 'then:', '  - tag: broken'),
  rule('change JSON in responses', 'Sets a value by its path.',
    'when: host:api.example.com path:/v1/me', 'then:', '  - edit_response_body:', '      json_set: { "$.plan": pro }'),
  rule('do not intercept banks', 'Their TLS is not intercepted.',
    'when: host:*.bank.example', 'then: tunnel'),
];

/** Appends a rule to a YAML rule file. */
export function withRule(text: string, item: string): string {
  const lines = text.replace(/^rules:\s*\[\s*\]\s*$/m, 'rules:').split('\n');
  while (lines.length > 0 && lines.at(-1)!.trim() === '') lines.pop();
  const at = lines.findIndex((l) => /^rules:\s*(#.*)?$/.test(l));
  if (at < 0) return `${[...lines, ...(lines.length > 0 ? [''] : []), 'rules:'].join('\n')}\n${item}`;
  let end = at + 1;
  while (end < lines.length && (/^(\s|-|#|$)/.test(lines[end]!))) end += 1;
  // The new item follows the indentation of the list.
  const flat = lines.slice(at + 1, end).some((l) => l.startsWith('- '));
  const added = (flat ? item.replace(/^ {2}/gm, '') : item).replace(/\n$/, '').split('\n');
  const rest = lines.slice(end);
  return `${[...lines.slice(0, end), ...added, ...(rest.length > 0 ? ['', ...rest] : [])].join('\n')}\n`;
}

/** A rule that matches requests to this host and path. */
export function ruleFor(host: string, path: string): string {
  const plain = path.split('?')[0] ?? '/';
  const query = `host:${host} path:${/^[\w./-]+$/.test(plain) ? plain : JSON.stringify(plain)}`;
  return rule(`like ${host}`, '', `when: ${JSON.stringify(query)}`, 'then:', '  - tag: seen').text;
}
