// The styles of all components: one type scale, and colours that follow the theme.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';

const SOURCE = join(import.meta.dirname, '..');
const files = readdirSync(SOURCE, { recursive: true, encoding: 'utf8' }).filter((name) => /\.(svelte|css)$/.test(name));

/** The styles of a component, or a whole style sheet. */
function stylesOf(name: string): string {
  const text = readFileSync(join(SOURCE, name), 'utf8');
  return name.endsWith('.css') ? text : text.slice(Math.max(0, text.lastIndexOf('<style>')));
}

/** The values of this property, wherever it is set. */
function values(property: string, styles: string): string[] {
  return [...styles.matchAll(new RegExp(`(?<![-\\w])${property}: ([^;}]+)`, 'g'))].map((m) => m[1]!.trim());
}

describe('styles', () => {
  it('are found', () => {
    expect(files.length).toBeGreaterThan(60);
  });

  it.each(files)('%s uses the type scale', (name) => {
    const styles = stylesOf(name);
    for (const size of values('font-size', styles)) expect(size).toMatch(/^(var\(--text-[1-5]\)|inherit)$/);
    for (const font of values('font', styles)) expect(font).toMatch(/^(inherit|(\d00 )?var\(--text-[1-5]\)(\/[\d.]+)? var\(--(mono|sans)\))$/);
  });

  it.each(files.filter((name) => name !== 'app.css'))('%s has no colours of its own', (name) => {
    // Black and white, as shades and behind QR codes, are the same in both themes.
    const own = [...stylesOf(name).matchAll(/#[0-9a-f]{3,8}\b|\brgba?\(|\bhsla?\(/gi)].map((m) => m[0]).filter((c) => !/^#(000[0-9a-f]?|fff)$/.test(c));
    expect(own).toEqual([]);
  });
});
