// Builds the pages into dist/, each file beside its compressed forms, ready to be embedded in the binary.
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import type { Plugin } from 'vite';
import { defineConfig } from 'vitest/config';

/** Below this many bytes compression gains nothing that a network packet would notice. */
const WORTHWHILE = 600;

/** Writes `.br` and `.gz` beside every text file of the build, so that the server compresses nothing. */
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
        writeFileSync(`${path}.gz`, gzipSync(bytes, { level: 9 }));
      }
    },
  };
}

export default defineConfig({
  plugins: [svelte(), precompress('dist')],
  build: {
    target: 'es2022',
    // A preload shim and inlined assets would need a laxer content security policy.
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: false,
  },
  // What needs no browser. Those that drive one have limits of their own, in e2e/vitest.config.ts.
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
