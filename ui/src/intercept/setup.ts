// The cards of the page "Intercept": the commands that each needs, and the query that finds its traffic.
import type { SetupView } from '../lib/api.gen';

export type CardId = 'terminal' | 'browser' | 'phone' | 'container' | 'llm' | 'machine';

export interface Command {
  label: string;
  text: string;
}

const BROWSERS = '(chrome OR chromium OR edge OR brave OR firefox)';
const THIS_MACHINE = '(127.0.0.0/8 OR ::1)';
/** By the program, not by the address: over USB a phone comes from loopback, and a phone's hotspot has any network. */
const PHONES = 'req.header.user-agent:(iPhone OR iPad OR Android)';
/** The user name that marks the requests of containers. In the network of the host, their address says nothing. */
export const CONTAINER_USER = 'container';
const CONTAINERS = `(user:${CONTAINER_USER} OR container:*)`;

/** Each flow belongs to one card at most. */
export const QUERIES: Record<CardId, string> = {
  terminal: `listener:proxy client:${THIS_MACHINE} -user:${BROWSERS} -req.header.user-agent:Mozilla -${PHONES} -${CONTAINERS}`,
  browser: `listener:proxy user:${BROWSERS}`,
  phone: `listener:proxy ${PHONES} -user:${BROWSERS} -${CONTAINERS}`,
  container: `listener:proxy ${CONTAINERS}`,
  llm: 'listener:gateway -tag:(media OR mcp)',
  machine: `listener:proxy client:${THIS_MACHINE} -user:* req.header.user-agent:Mozilla -${PHONES} -container:*`,
};

/** The query of a card for flows since this moment, in milliseconds. */
export function since(id: CardId, start: number): string {
  return `${QUERIES[id]} time:>=${new Date(start).toISOString()}`;
}

export const SHELLS = ['sh', 'fish', 'PowerShell'] as const;
export type Shell = (typeof SHELLS)[number];

/** Lines that send the programs of a shell through the proxy, and make them trust the CA. */
export function environment(shell: Shell, { proxy, command }: Pick<SetupView, 'proxy' | 'command'>): string {
  const url = `http://${proxy}`;
  if (shell === 'fish') return `set -gx http_proxy ${url}\nset -gx https_proxy ${url}\n${command} ca trust-env --shell fish | source`;
  if (shell === 'PowerShell') {
    return `$env:HTTP_PROXY = '${url}'\n$env:HTTPS_PROXY = '${url}'\n${command} ca trust-env --shell powershell | Out-String | Invoke-Expression`;
  }
  return `export http_proxy=${url}\nexport https_proxy=${url}\neval "$(${command} ca trust-env)"`;
}

/** A path as an argument of a shell. */
function quoted(path: string): string {
  return /^[\w@%+=:,./\\-]+$/.test(path) ? path : `"${path.replace(/(["$`])/g, '\\$1')}"`;
}

/** Runs an image behind the proxy by `interflow exec`, which reads everything else from the running instance. */
export const execDocker = (command: string): string => `${command} exec --docker -- docker run --rm -it IMAGE`;

/** Runs an image behind the proxy, with the credentials that mark its requests, if there are any. A loopback address is reached from a container of Linux by the host's network only. */
export function dockerRun(setup: Pick<SetupView, 'proxy' | 'lan_proxy' | 'os' | 'ca_bundle'>, password?: string): string {
  const port = setup.proxy.slice(setup.proxy.lastIndexOf(':') + 1);
  const hostNetwork = setup.os === 'linux' && !setup.lan_proxy;
  const login = password ? `${CONTAINER_USER}:${password}@` : '';
  const url = `http://${login}${hostNetwork ? setup.proxy : `host.docker.internal:${port}`}`;
  const bundle = '/etc/interflow-ca.pem';
  const trust = ['SSL_CERT_FILE', 'CURL_CA_BUNDLE', 'REQUESTS_CA_BUNDLE', 'NODE_EXTRA_CA_CERTS'];
  return [
    `docker run --rm -it ${hostNetwork ? '--network host' : '--add-host host.docker.internal:host-gateway'}`,
    `-v ${quoted(`${setup.ca_bundle}:${bundle}:ro`)}`,
    ...['http_proxy', 'https_proxy', 'HTTP_PROXY', 'HTTPS_PROXY'].map((name) => `-e ${name}=${url}`),
    '-e NODE_USE_ENV_PROXY=1',
    ...trust.map((name) => `-e ${name}=${bundle}`),
    'IMAGE',
  ].join(' \\\n  ');
}

/** Base URLs of the gateway, with the variable that the provider's SDK reads, if there is one. */
export function providers(gateway: string): { name: string; url: string; variable?: string }[] {
  const base = `http://${gateway}`;
  return [
    { name: 'Anthropic', url: `${base}/anthropic`, variable: 'ANTHROPIC_BASE_URL' },
    { name: 'OpenAI', url: `${base}/openai/v1`, variable: 'OPENAI_BASE_URL' },
    { name: 'Gemini', url: `${base}/gemini`, variable: 'GOOGLE_GEMINI_BASE_URL' },
    { name: 'Ollama', url: `${base}/ollama`, variable: 'OLLAMA_HOST' },
    { name: 'Mistral', url: `${base}/mistral` },
    { name: 'OpenRouter', url: `${base}/openrouter/v1` },
    { name: 'Groq', url: `${base}/groq/v1` },
    { name: 'DeepSeek', url: `${base}/deepseek/v1` },
  ];
}

/** Sends an Android device at the USB port through the proxy, which may listen on loopback. */
export function adb(proxy: string): Command[] {
  const port = proxy.slice(proxy.lastIndexOf(':') + 1);
  return [
    { label: 'Use the proxy over USB', text: `adb reverse tcp:${port} tcp:${port}\nadb shell settings put global http_proxy localhost:${port}` },
    { label: 'Open the certificate', text: `adb shell am start -a android.intent.action.VIEW -d http://localhost:${port}/setup` },
    { label: 'Undo', text: `adb shell settings put global http_proxy :0\nadb reverse --remove tcp:${port}` },
  ];
}
