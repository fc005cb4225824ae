// Builds the pages into dist/, with compressed variants of each file, ready to be embedded in the binary.
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, constants } from 'node:zlib';
import type { Plugin } from 'vite';
import { defineConfig } from 'vitest/config';
import { docs } from './docs.mjs';

/** What a browser must load before it shows the first page, in bytes as sent with Brotli. */
const MAX_FIRST_LOAD = 200_000;

/** Minimum file size for compression, in bytes. */
const WORTHWHILE = 600;

/** Writes a `.br` variant of every text file, which the binary embeds in its place. */
function precompress(folder: string): Plugin {
  return {
    name: 'precompress',
    apply: 'build',
    closeBundle() {
      for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
        if (!entry.isFile() || !/\.(js|css|html|svg|json)$/.test(entry.name)) continue;
        const path = join(entry.parentPath, entry.name);
        const bytes = readFileSync(path);
        if (bytes.length < WORTHWHILE) continue;
        const hint = { [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length };
        writeFileSync(`${path}.br`, brotliCompressSync(bytes, { params: hint }));
      }
    },
  };
}

/** Fails the build when the first load is too large: the page, its scripts with all that they import at once, and its styles. */
function firstLoad(folder: string): Plugin {
  return {
    name: 'first-load',
    apply: 'build',
    writeBundle(_, bundle) {
      const needed = new Set<string>(['index.html']);
      const add = (name: string) => {
        if (needed.has(name)) return;
        needed.add(name);
        const chunk = bundle[name];
        if (chunk?.type !== 'chunk') return;
        chunk.imports.forEach(add);
        chunk.viteMetadata?.importedCss.forEach((css) => needed.add(css));
      };
      for (const chunk of Object.values(bundle)) if (chunk.type === 'chunk' && chunk.isEntry) add(chunk.fileName);
      for (const file of readdirSync('public')) needed.add(file);
      const sizes = [...needed].map((name) => [name, brotliCompressSync(readFileSync(join(folder, name))).length] as const);
      const total = sizes.reduce((n, [, size]) => n + size, 0);
      if (total > MAX_FIRST_LOAD) {
        const largest = sizes.sort((a, b) => b[1] - a[1]).map(([name, size]) => `${name} ${size}`).join(', ');
        this.error(`the first load has ${total} bytes in Brotli, more than ${MAX_FIRST_LOAD}: load something later (${largest})`);
      }
      this.info(`first load: ${total} bytes in Brotli, of at most ${MAX_FIRST_LOAD}`);
    },
  };
}

export default defineConfig({
  plugins: [svelte(), docs('../docs'), firstLoad('dist'), precompress('dist')],
  build: {
    target: 'es2022',
    // A preload shim and inlined assets would need a weaker content security policy.
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: false,
  },
  // Tests without a browser. The browser tests have their own limits in e2e/vitest.config.ts.
  test: { dir: 'src' },
  server: {
    // `npm run dev` beside a running instance: INTERFLOW_ADMIN=http://127.0.0.1:7072 and its token.
    proxy: {
      '/api': {
        target: process.env['INTERFLOW_ADMIN'] ?? 'http://127.0.0.1:7072',
        changeOrigin: true,
        ws: true,
        configure: (proxy) => {
          const bearer = `Bearer ${process.env['INTERFLOW_TOKEN'] ?? ''}`;
          proxy.on('proxyReq', (request) => {
            request.setHeader('authorization', bearer);
            request.removeHeader('origin');
          });
          proxy.on('proxyReqWs', (request) => {
            request.setHeader('authorization', bearer);
            request.removeHeader('origin');
          });
        },
      },
    },
  },
});
