// Builds the pages into dist/, with compressed variants of each file, ready to be embedded in the binary.
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import type { Plugin } from 'vite';
import { defineConfig } from 'vitest/config';
import { docs } from './docs.mjs';

/** Minimum file size for compression, in bytes. */
const WORTHWHILE = 600;

/** Writes `.br` and `.gz` variants of every text file, so that the server does not compress. */
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
  plugins: [svelte(), docs('../docs'), precompress('dist')],
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
