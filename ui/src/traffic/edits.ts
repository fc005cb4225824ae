// Parses edited header fields and computes the changes.

/** Parses `Name: value` lines. */
export function fieldsOf(written: string): [string, string][] {
  const fields: [string, string][] = [];
  for (const line of written.split('\n')) {
    if (line.trim() === '') continue;
    const at = line.indexOf(':');
    if (at < 1) throw new Error(`“${line.trim()}” is not a header field: write Name: value`);
    fields.push([line.slice(0, at).trim(), line.slice(at + 1).trim()]);
  }
  return fields;
}

/** The changes from the original fields to the edited ones; null removes a field. */
export function fieldChanges(before: [string, string][], written: string): { name: string; value: string | null }[] {
  const after = fieldsOf(written);
  const values = (list: [string, string][], name: string) =>
    list.filter(([n]) => n.toLowerCase() === name).map(([, v]) => v);
  const changes: { name: string; value: string | null }[] = [];
  const seen = new Set<string>();
  for (const [name] of [...after, ...before]) {
    const key = name.toLowerCase();
    if (seen.has(key)) continue;
    seen.add(key);
    const [old, fresh] = [values(before, key), values(after, key)];
    if (old.length === fresh.length && old.every((v, i) => v === fresh[i])) continue;
    if (fresh.length > 1) throw new Error(`${name} occurs more than once: a changed field can have only one value`);
    changes.push({ name, value: fresh[0] ?? null });
  }
  return changes;
}

/** The changes in the syntax of the replay API. */
export function headerEdits(before: [string, string][], written: string): string[] {
  return fieldChanges(before, written).map(({ name, value }) => (value === null ? `${name}:` : value === '' ? `${name};` : `${name}: ${value}`));
}
