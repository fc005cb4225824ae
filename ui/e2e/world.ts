// An instance of the built binary, an origin, a client and a browser.
import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request as httpRequest, type IncomingHttpHeaders, type Server } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { chromium, type Browser, type BrowserContext, type Page } from 'playwright-core';
import { startOrigin } from './origin';

const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

export interface Sent {
  method?: string;
  headers?: Record<string, string>;
  body?: string;
  /** Override of the local origin. */
  authority?: string;
}

/** The response. */
export interface Fetched {
  status: number;
  headers: IncomingHttpHeaders;
  body: Buffer;
}

/** Options of an instance. */
export interface Start {
  /** An existing data directory, which is not removed. */
  home?: string;
  /** Configuration text, which may name the origin, and additional files. */
  config?: (origin: string) => string;
  files?: Record<string, string>;
  listenProxy?: string;
  /** Further options of `interflow run`. */
  options?: string[];
}

export class World {
  /** Requests of the browser to other hosts, and its console errors. */
  readonly strays: string[] = [];
  readonly complaints: string[] = [];

  private constructor(
    readonly origin: string,
    readonly proxy: string,
    readonly gateway: string,
    readonly admin: string,
    readonly token: string,
    readonly browser: Browser,
    private readonly server: Server,
    private readonly process: ChildProcess,
    readonly home: string,
    private readonly isKept: boolean,
  ) {}

  static async start({ home: existing, config, files = {}, listenProxy = '127.0.0.1:0', options = [] }: Start = {}): Promise<World> {
    const binary = resolve(process.env['INTERFLOW_BIN'] ?? '../target/debug/interflow');
    if (!existsSync(binary)) throw new Error(`${binary} is not there: build it, or name one in INTERFLOW_BIN`);
    const { server, address } = await startOrigin();
    const home = existing ?? mkdtempSync(join(tmpdir(), 'interflow-ui-'));
    const anywhere = ['--listen-proxy', listenProxy, '--listen-gateway', '127.0.0.1:0', '--listen-admin', '127.0.0.1:0'];
    // Variables of this harness must not be read as configuration.
    const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith('INTERFLOW_'));
    const named = config ? ['-c', join(home, 'config.toml')] : [];
    if (config) writeFileSync(join(home, 'config.toml'), config(address));
    for (const [name, text] of Object.entries(files)) writeFileSync(join(home, name), text);
    const child = spawn(binary, ['run', ...named, ...anywhere, ...options], { env: { ...Object.fromEntries(inherited), INTERFLOW_DATA_DIR: home, NO_COLOR: '1' } });
    const said = await greeting(child);
    const proxy = /proxy +http:\/\/(\S+)/.exec(said)?.[1];
    const gateway = /gateway +http:\/\/([^/\s]+)/.exec(said)?.[1] ?? '';
    const admin = /admin +http:\/\/([^/\s]+)/.exec(said)?.[1];
    if (!proxy || !admin) throw new Error(`the instance said:\n${said}`);
    const token = readFileSync(join(home, 'admin.token'), 'utf8').trim();
    const executablePath = process.env['CHROMIUM'] ?? '/usr/bin/chromium';
    const browser = await chromium.launch({ executablePath, args: FLAGS });
    return new World(address, proxy, gateway, admin, token, browser, server, child, home, existing !== undefined);
  }

  async stop(): Promise<void> {
    await this.browser.close();
    this.server.closeAllConnections();
    this.server.close();
    const gone = new Promise((done) => this.process.once('exit', done));
    this.process.kill('SIGTERM');
    await gone;
    if (!this.isKept) rmSync(this.home, { recursive: true, force: true });
  }

  /** An authenticated page at this path. */
  async page(path = '/', options: Parameters<Browser['newContext']>[0] = {}): Promise<Page> {
    const context = await this.browser.newContext({ viewport: { width: 1440, height: 860 }, ...options });
    await context.grantPermissions(['clipboard-read', 'clipboard-write']);
    const page = await this.watched(context);
    await page.goto(`http://${this.admin}/?token=${this.token}`);
    if (path !== '/') await page.goto(`http://${this.admin}${path}`);
    return page;
  }

  private async watched(context: BrowserContext): Promise<Page> {
    const page = await context.newPage();
    page.setDefaultTimeout(8000);
    page.on('request', (r) => {
      const address = new URL(r.url());
      if (address.protocol !== 'blob:' && address.host !== this.admin) this.strays.push(r.url());
    });
    page.on('console', (m) => {
      // The browser logs every failed request; only the page's reaction is tested.
      if (/^Failed to load resource: the server responded/.test(m.text())) return;
      if (m.type() === 'error' || /Content.Security/i.test(m.text())) this.complaints.push(m.text());
    });
    page.on('pageerror', (e) => this.complaints.push(String(e)));
    return page;
  }

  /** Sends a request through the proxy and reads the whole response. */
  async send(path: string, sent: Sent = {}): Promise<number> {
    return (await this.fetch(path, sent)).status;
  }

  /** As `send`, returning the whole response; status 0 if there was none. */
  fetch(path: string, { method = 'GET', headers = {}, body = '', authority = this.origin }: Sent = {}): Promise<Fetched> {
    const [host, port] = this.proxy.split(':');
    return new Promise((done) => {
      const request = httpRequest({
        host, port, method, path: `http://${authority}${path}`, agent: false,
        headers: { host: authority, ...headers },
      });
      request.on('response', (response) => {
        const parts: Buffer[] = [];
        response.on('data', (part: Buffer) => parts.push(part));
        response.on('close', () => done({ status: response.statusCode ?? 0, headers: response.headers, body: Buffer.concat(parts) }));
      });
      request.on('error', () => done({ status: 0, headers: {}, body: Buffer.alloc(0) }));
      request.end(body);
    });
  }

  /** Calls the gateway as an SDK does; returns status and body. */
  async ask(path: string, body: unknown, headers: Record<string, string> = {}): Promise<{ status: number; text: string }> {
    const response = await fetch(`http://${this.gateway}${path}`, {
      method: 'POST', headers: { 'content-type': 'application/json', 'anthropic-version': '2023-06-01', ...headers }, body: JSON.stringify(body),
    });
    return { status: response.status, text: await response.text() };
  }

  /** Opens a WebSocket through the proxy, sends one message, and waits for the end. */
  webSocket(path = '/socket'): Promise<void> {
    const [host, port] = this.proxy.split(':');
    const socket = connect(Number(port), host);
    const key = randomBytes(16).toString('base64');
    socket.write(
      `GET http://${this.origin}${path} HTTP/1.1\r\nhost: ${this.origin}\r\nupgrade: websocket\r\nconnection: Upgrade\r\n` +
        `sec-websocket-version: 13\r\nsec-websocket-key: ${key}\r\n\r\n`,
    );
    const text = Buffer.from('hello from the client');
    socket.once('data', () => socket.write(Buffer.concat([Buffer.from([0x81, 0x80 | text.length, 0, 0, 0, 0]), text])));
    socket.resume();
    return new Promise((done) => socket.once('close', () => done()).once('error', () => done()));
  }

  /** Calls the admin API. */
  async api<T>(path: string, init: RequestInit = {}): Promise<T> {
    const headers = { authorization: `Bearer ${this.token}`, ...(init.headers as Record<string, string> | undefined) };
    const response = await fetch(`http://${this.admin}/api/v1${path}`, { ...init, headers });
    return (await response.json()) as T;
  }

  /** Waits until a number of matching flows are recorded. */
  async recorded(n: number, query = ''): Promise<void> {
    for (let i = 0; i < 200; i += 1) {
      const { count } = await this.api<{ count: number }>(`/flows/count?${new URLSearchParams({ query }).toString()}`);
      if (count >= n) return;
      await new Promise((done) => setTimeout(done, 50));
    }
    throw new Error(`${n} flows were not recorded`);
  }
}

function greeting(child: ChildProcess): Promise<string> {
  return new Promise((done, fail) => {
    let said = '';
    const hear = (part: Buffer) => {
      said += part.toString();
      if (/admin +http\S+/.test(said) && /record /.test(said)) done(said);
    };
    child.stdout?.on('data', hear);
    child.stderr?.on('data', hear);
    child.once('exit', (code) => fail(new Error(`the instance ended with ${code}:\n${said}`)));
    setTimeout(() => fail(new Error(`the instance did not say where it listens:\n${said}`)), 20_000).unref();
  });
}
