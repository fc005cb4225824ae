import { describe, expect, it } from 'vitest';
import { stepsFor, systemOf } from '../settings/trust';
import { adb, dockerRun, environment, providers, QUERIES, since } from './setup';

describe('the page Intercept', () => {
  it('asks for the traffic of a card since a moment', () => {
    expect(since('llm', 0)).toBe('listener:gateway -tag:(media OR mcp) time:>=1970-01-01T00:00:00.000Z');
    expect(new Set(Object.values(QUERIES)).size).toBe(6);
  });

  it('writes variables in the syntax of each shell', () => {
    const here = { proxy: '127.0.0.1:7070', command: 'interflow' };
    expect(environment('sh', here)).toBe('export http_proxy=http://127.0.0.1:7070\nexport https_proxy=http://127.0.0.1:7070\neval "$(interflow ca trust-env)"');
    expect(environment('fish', here)).toContain('set -gx https_proxy http://127.0.0.1:7070');
    expect(environment('PowerShell', { ...here, command: 'interflow --data-dir /d' })).toBe("$env:HTTP_PROXY = 'http://127.0.0.1:7070'\n$env:HTTPS_PROXY = 'http://127.0.0.1:7070'\ninterflow --data-dir /d ca trust-env --shell powershell | Out-String | Invoke-Expression");
  });

  it('reaches loopback from a container by the network of the host, on Linux only', () => {
    const setup = { proxy: '127.0.0.1:7070', lan_proxy: null, os: 'linux', ca_bundle: '/data/bundle.pem' };
    const alone = dockerRun(setup);
    expect(alone).toContain('--network host');
    expect(alone).toContain('-e https_proxy=http://127.0.0.1:7070');
    for (const other of [{ ...setup, os: 'macos' }, { ...setup, lan_proxy: '192.168.1.20:7070' }]) {
      expect(dockerRun(other)).toContain('-e https_proxy=http://host.docker.internal:7070');
      expect(dockerRun(other)).not.toContain('--network');
    }
    expect(dockerRun({ ...setup, ca_bundle: '/my data/b.pem' })).toContain('-v "/my data/b.pem:/etc/interflow-ca.pem:ro"');
  });

  it('marks the requests of a container by a user name', () => {
    const setup = { proxy: '127.0.0.1:7070', lan_proxy: null, os: 'linux', ca_bundle: '/data/bundle.pem' };
    expect(dockerRun(setup, 'p')).toContain('-e HTTPS_PROXY=http://container:p@127.0.0.1:7070');
    expect(dockerRun({ ...setup, os: 'macos' }, 'p')).toContain('-e http_proxy=http://container:p@host.docker.internal:7070');
    for (const card of ['terminal', 'phone', 'container'] as const) expect(QUERIES[card]).toContain('(user:container OR container:*)');
  });

  it('knows a phone by its program, whatever its address', () => {
    expect(QUERIES.phone).not.toContain('client:');
    for (const card of ['terminal', 'machine'] as const) expect(QUERIES[card]).toContain('-req.header.user-agent:(iPhone OR iPad OR Android)');
  });

  it('sends a phone to the page of the proxy rather than to mail or AirDrop', () => {
    const reach = { command: 'interflow', run_command: 'interflow run -c /etc/i.toml', proxy: '127.0.0.1:7070', lan_proxy: '192.168.1.20:7070', phone_page: 'http://192.168.1.20:7070/setup' };
    const of = (system: string, known: typeof reach | null) => stepsFor(known).find((s) => s.system === system)!.steps;
    for (const system of ['iOS', 'Android']) {
      const steps = of(system, reach);
      expect(steps[0]).toMatchObject({ command: 'http://192.168.1.20:7070/setup', qr: true });
      expect(steps.at(-1)!.text).toContain('192.168.1.20, port 7070');
      expect(JSON.stringify(steps)).not.toMatch(/AirDrop|mail/i);
      const alone = of(system, { ...reach, lan_proxy: null as unknown as string, phone_page: null as unknown as string });
      expect(alone[0]!.command).toBe('interflow run -c /etc/i.toml --listen-proxy 0.0.0.0:7070');
      expect(alone.some((s) => s.qr)).toBe(false);
    }
    expect(stepsFor(null).map((s) => s.system)).toContain(systemOf('Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X)'));
  });

  it('names the base URL and the variable of each provider', () => {
    const [anthropic] = providers('127.0.0.1:7071');
    expect(anthropic).toEqual({ name: 'Anthropic', url: 'http://127.0.0.1:7071/anthropic', variable: 'ANTHROPIC_BASE_URL' });
  });

  it('undoes what it sets on an Android device', () => {
    const commands = adb('127.0.0.1:7070');
    expect(commands[0]!.text).toContain('adb reverse tcp:7070 tcp:7070');
    expect(commands.at(-1)!.text).toContain('http_proxy :0');
  });
});
