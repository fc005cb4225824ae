// The program that sent a flow, as a small sign before the host: its letter on a colour of its own.

export interface AppSign {
  name: string;
  letter: string;
  /** Of its colour, in degrees. */
  hue: number;
}

/** Programs whose colour people know. */
const HUES: [RegExp, number][] = [
  [/claude/, 18], [/codex|openai|chatgpt/, 165], [/gemini|chrome|google/, 217], [/firefox|zen/, 24], [/safari|webkit/, 205], [/edge/, 190], [/brave/, 12],
  [/curl|wget|httpie/, 215], [/python|pip|uv$/, 50], [/node|npm|bun|deno/, 120], [/ruby|gem/, 355], [/java|gradle|mvn/, 30], [/^go/, 190], [/git/, 10], [/docker|podman/, 205], [/ollama/, 260],
];

/** The last part of a path, without `.exe`. */
const baseName = (program: string) => program.split(/[\\/]/).pop()!.replace(/\.exe$/i, '');

function hashed(text: string): number {
  let hash = 0;
  for (const c of text) hash = (hash * 31 + c.codePointAt(0)!) % 360;
  return hash;
}

/** Browsers, whose `User-Agent` names others, too; the first that occurs counts. */
const BROWSERS: [RegExp, string][] = [
  [/\bEdgA?\//, 'Edge'], [/\bOPR\//, 'Opera'], [/\bFirefox\/|\bFxiOS\//, 'Firefox'], [/\b(Headless)?Chrome\/|\bCriOS\//, 'Chrome'], [/\bVersion\/.*\bSafari\//, 'Safari'],
];

/** The program that a `User-Agent` names. */
export function programOfAgent(agent: string | undefined): string {
  if (!agent) return '';
  const browser = agent.startsWith('Mozilla/') ? BROWSERS.find(([pattern]) => pattern.test(agent)) : undefined;
  if (browser) return browser[1];
  // The first product; what a browser calls itself says nothing.
  const [, product = ''] = /^([\w.+-]{1,40})(?:[/ ]|$)/.exec(agent) ?? [];
  return product === 'Mozilla' ? '' : product;
}

/** The sign of a program; null without a name. */
export function appSign(program: string | undefined): AppSign | null {
  const name = baseName(program ?? '').trim();
  if (!name) return null;
  const known = HUES.find(([pattern]) => pattern.test(name.toLowerCase()));
  return { name, letter: name.charAt(0).toUpperCase(), hue: known?.[1] ?? hashed(name.toLowerCase()) };
}
