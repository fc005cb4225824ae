// The text that a stream of events carries in pieces: of language models' APIs, and of plain events.

/** The texts of one event's data, by where they belong; the order of first appearance is kept. */
export interface Assembled {
  /** Such as `text`, `thinking`, `tool input`. */
  kind: string;
  text: string;
}

type Json = Record<string, unknown>;
const isObject = (value: unknown): value is Json => typeof value === 'object' && value !== null;
const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);

/** The pieces of text in one event. */
function pieces(event: Json): [string, string][] {
  const out: [string, string][] = [];
  const add = (key: string, value: unknown) => {
    if (typeof value === 'string' && value !== '') out.push([key, value]);
  };
  const delta = event['delta'];
  // Anthropic's messages, by block.
  if (event['type'] === 'content_block_delta' && isObject(delta)) {
    const block = String(event['index'] ?? 0);
    add(`${block} text`, delta['text']);
    add(`${block} thinking`, delta['thinking']);
    add(`${block} tool input`, delta['partial_json']);
    return out;
  }
  // Google's Interactions, by step.
  if (event['event_type'] === 'step.delta' && isObject(delta)) {
    const step = String(event['index'] ?? 0);
    add(`${step} text`, delta['text']);
    add(`${step} tool input`, delta['arguments']);
    if (isObject(delta['content'])) add(`${step} thinking`, delta['content']['text']);
    return out;
  }
  // Bedrock's Converse, by block.
  if (typeof event['contentBlockIndex'] === 'number' && isObject(delta)) {
    const block = String(event['contentBlockIndex']);
    add(`${block} text`, delta['text']);
    if (isObject(delta['reasoningContent'])) add(`${block} thinking`, delta['reasoningContent']['text']);
    if (isObject(delta['toolUse'])) add(`${block} tool input`, delta['toolUse']['input']);
    return out;
  }
  // OpenAI's responses, by item; its `done` events repeat the text.
  if (typeof event['type'] === 'string' && event['type'].endsWith('.delta')) {
    const item = `${String(event['output_index'] ?? 0)}.${String(event['content_index'] ?? 0)}`;
    const kind = /reasoning/.test(event['type']) ? 'thinking' : /arguments|input/.test(event['type']) ? 'tool input' : 'text';
    add(`${item} ${kind}`, delta);
    return out;
  }
  // OpenAI's chat completions, and the many that follow them.
  for (const choice of list(event['choices'])) {
    if (!isObject(choice)) continue;
    const index = String(choice['index'] ?? 0);
    add(`${index} text`, choice['text']);
    if (!isObject(choice['delta'])) continue;
    add(`${index} text`, choice['delta']['content']);
    add(`${index} thinking`, choice['delta']['reasoning_content'] ?? choice['delta']['reasoning']);
    for (const call of list(choice['delta']['tool_calls'])) {
      if (isObject(call) && isObject(call['function'])) add(`${index}.${String(call['index'] ?? 0)} tool input`, call['function']['arguments']);
    }
  }
  // Gemini.
  for (const candidate of list(event['candidates'])) {
    if (!isObject(candidate) || !isObject(candidate['content'])) continue;
    for (const part of list(candidate['content']['parts'])) {
      if (isObject(part)) add(`${String(candidate['index'] ?? 0)} ${part['thought'] === true ? 'thinking' : 'text'}`, part['text']);
    }
  }
  return out;
}

/** The data lines of an event as recorded: `event:`, `id:` and comments are left out. */
export function dataOf(event: string): string {
  const lines = event.split(/\r\n|\r|\n/);
  if (!lines.some((line) => /^(data|event|id|retry):|^:/.test(line))) return event.trim();
  return lines.filter((line) => /^data(:|$)/.test(line)).map((line) => line.replace(/^data:? ?/, '')).join('\n');
}

/** The name of an event, if it has one. */
export function eventName(event: string): string {
  return /^event: ?(.*)$/m.exec(event)?.[1]?.trim() ?? '';
}

/** The events of a stream of server-sent events. */
export function splitEvents(text: string): string[] {
  return text.split(/(?:\r\n|\r|\n){2,}/).filter((event) => event.trim() !== '');
}

/** Joins the texts of all events. */
export function assemble(events: string[]): Assembled[] {
  const joined = new Map<string, string[]>();
  for (const event of events) {
    const data = dataOf(event);
    if (!data.startsWith('{')) continue;
    try {
      const value: unknown = JSON.parse(data);
      if (!isObject(value)) continue;
      for (const [key, text] of pieces(value)) {
        const known = joined.get(key);
        if (known) known.push(text);
        else joined.set(key, [text]);
      }
    } catch {
      // Not JSON, or cut: it has no text of a known form.
    }
  }
  return [...joined].map(([key, texts]) => ({ kind: key.slice(key.indexOf(' ') + 1), text: texts.join('') }));
}
