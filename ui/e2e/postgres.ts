// A PostgreSQL server of its own for a test, from Debian's package.
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const VERSIONS = '/usr/lib/postgresql';
const version = existsSync(VERSIONS) ? readdirSync(VERSIONS).sort((a, b) => Number(b) - Number(a))[0] : undefined;
/** The folder of the server's programs; undefined where it is not installed. */
export const programs = version && join(VERSIONS, version, 'bin');

export class Postgres {
  private constructor(
    readonly url: string,
    private readonly folder: string,
    private readonly process: ChildProcess,
  ) {}

  static async start(): Promise<Postgres> {
    if (!programs) throw new Error('PostgreSQL is not installed');
    const folder = mkdtempSync(join(tmpdir(), 'interflow-pg-'));
    chmodSync(folder, 0o777);
    const data = join(folder, 'data');
    // The server refuses to run as root.
    const account = process.getuid?.() === 0 ? ['setpriv', '--reuid=postgres', '--regid=postgres', '--clear-groups'] : ['env'];
    const command = (name: string, ...args: string[]) => [...account.slice(1), join(programs!, name), ...args];
    execFileSync(account[0]!, command('initdb', '-D', data, '-A', 'trust', '-U', 'postgres', '--no-sync'), { stdio: 'ignore' });
    const port = await freePort();
    const child = spawn(account[0]!, command('postgres', '-D', data, '-p', String(port), '-k', folder, '-h', '127.0.0.1', '-F'), { stdio: 'ignore' });
    for (let left = 200; ; left--) {
      try {
        execFileSync(join(programs, 'pg_isready'), ['-h', '127.0.0.1', '-p', String(port)], { stdio: 'ignore' });
        break;
      } catch (error) {
        if (left === 0) throw error;
        await new Promise((done) => setTimeout(done, 50));
      }
    }
    return new Postgres(`postgres://postgres@127.0.0.1:${port}/postgres`, folder, child);
  }

  async stop(): Promise<void> {
    const gone = new Promise((done) => this.process.once('exit', done));
    this.process.kill('SIGINT');
    await gone;
    rmSync(this.folder, { recursive: true, force: true });
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const { port } = server.address() as AddressInfo;
  await new Promise((done) => server.close(done));
  return port;
}
