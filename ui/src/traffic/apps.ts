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

/** The sign of a program; null without a name. */
export function appSign(program: string | undefined): AppSign | null {
  const name = baseName(program ?? '').trim();
  if (!name) return null;
  const known = HUES.find(([pattern]) => pattern.test(name.toLowerCase()));
  return { name, letter: name.charAt(0).toUpperCase(), hue: known?.[1] ?? hashed(name.toLowerCase()) };
}
