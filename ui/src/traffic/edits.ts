// Header fields as they were written in the dialog, against those that were recorded.

/** The changes that lead from the recorded header fields to those that were written, as the API takes them. */
export function headerEdits(before: [string, string][], written: string): string[] {
  const after: [string, string][] = [];
  for (const line of written.split('\n')) {
    if (line.trim() === '') continue;
    const at = line.indexOf(':');
    if (at < 1) throw new Error(`“${line.trim()}” is no header field: write Name: value`);
    after.push([line.slice(0, at).trim(), line.slice(at + 1).trim()]);
  }
  const values = (list: [string, string][], name: string) =>
    list.filter(([n]) => n.toLowerCase() === name).map(([, v]) => v);
  const edits: string[] = [];
  const seen = new Set<string>();
  for (const [name] of [...after, ...before]) {
    const key = name.toLowerCase();
    if (seen.has(key)) continue;
    seen.add(key);
    const [old, fresh] = [values(before, key), values(after, key)];
    if (old.length === fresh.length && old.every((v, i) => v === fresh[i])) continue;
    if (fresh.length > 1) throw new Error(`${name} is there twice: a changed field can have one value only`);
    edits.push(fresh[0] === undefined ? `${name}:` : fresh[0] === '' ? `${name};` : `${name}: ${fresh[0]}`);
  }
  return edits;
}
