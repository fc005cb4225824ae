// Instructions for trusting the certificate authority on each system.
import type { SetupView } from '../lib/api.gen';

export interface Steps {
  system: string;
  steps: { text: string; command?: string; qr?: boolean }[];
}

type Reach = Pick<SetupView, 'lan_proxy' | 'phone_page' | 'proxy' | 'command' | 'run_command'>;

const machinesOf = (command: string): Steps[] => {
  const one = { text: 'Or let Interflow do it on this machine:', command: `${command} ca install` };
  return [
    {
      system: 'macOS',
      steps: [
        { text: 'Download the certificate, then:', command: 'security add-trusted-cert -r trustRoot -k ~/Library/Keychains/login.keychain-db ~/Downloads/interflow-ca.pem' },
        one,
      ],
    },
    {
      system: 'Windows',
      steps: [
        { text: 'Download the certificate, then in a terminal:', command: 'certutil -user -addstore Root %USERPROFILE%\\Downloads\\interflow-ca.pem' },
        one,
      ],
    },
    {
      system: 'Debian, Ubuntu',
      steps: [
        { text: 'Download the certificate, then:', command: 'sudo cp ~/Downloads/interflow-ca.pem /usr/local/share/ca-certificates/interflow-ca.crt\nsudo update-ca-certificates' },
        one,
      ],
    },
    {
      system: 'Fedora, RHEL',
      steps: [
        { text: 'Download the certificate, then:', command: 'sudo cp ~/Downloads/interflow-ca.pem /etc/pki/ca-trust/source/anchors/\nsudo update-ca-trust' },
        one,
      ],
    },
    {
      system: 'Firefox',
      steps: [
        { text: 'Settings, Privacy & Security, Certificates, View Certificates, Authorities, Import: choose the downloaded file.' },
        { text: 'Tick “Trust this CA to identify websites”.' },
      ],
    },
    {
      system: 'One program',
      steps: [
        { text: 'Run it so that Node, Python, Go, curl and others trust the authority for this run only:', command: `${command} exec -- COMMAND` },
        { text: 'Or set the environment variables yourself:', command: `eval "$(${command} ca trust-env)"` },
      ],
    },
  ];
};

/** How a phone gets to the page of the proxy port that has the certificate. */
function openPage(reach: Reach | null): Steps['steps'] {
  if (reach?.phone_page) {
    return [{ text: 'On the phone, in the same network, scan this code or open the page. It has the certificate:', command: reach.phone_page, qr: true }];
  }
  const port = reach?.proxy.split(':').pop() ?? '7070';
  return [
    { text: 'A phone cannot reach the proxy, which listens on the loopback address only. Restart it for your network, and restrict who may use it:', command: `${reach?.run_command ?? 'interflow run'} --listen-proxy 0.0.0.0:${port}` },
    { text: 'Then open its page for phones, of which Intercept shows a QR code:', command: `http://ADDRESS:${port}/setup` },
  ];
}

/** The steps on each system; those of phones depend on how they reach the proxy. */
export function stepsFor(reach: Reach | null): Steps[] {
  const machines = machinesOf(reach?.command ?? 'interflow');
  const lan = reach?.lan_proxy ?? null;
  const [host, port] = lan ? [lan.slice(0, lan.lastIndexOf(':')), lan.slice(lan.lastIndexOf(':') + 1)] : ['the address of this machine', reach?.proxy.split(':').pop() ?? '7070'];
  const useProxy = { text: `In the settings of the Wi-Fi network, set the proxy to manual: ${host}, port ${port}.` };
  const phones: Steps[] = [
    {
      system: 'iOS',
      steps: [
        ...openPage(reach),
        { text: 'Download the profile in Safari, then install it: Settings, General, VPN & Device Management.' },
        { text: 'Settings, General, About, Certificate Trust Settings: turn on full trust.' },
        useProxy,
      ],
    },
    {
      system: 'Android',
      steps: [
        ...openPage(reach),
        { text: 'Download the certificate, then install it: search the settings for “CA certificate”.' },
        { text: 'Browsers trust it then; other apps only if they allow user certificates.' },
        useProxy,
      ],
    },
  ];
  const firefox = machines.findIndex((s) => s.system === 'Firefox');
  return [...machines.slice(0, firefox), ...phones, ...machines.slice(firefox)];
}

/** The operating system according to the user agent. */
export function systemOf(agent: string): string {
  if (/iPhone|iPad/.test(agent)) return 'iOS';
  if (/Android/.test(agent)) return 'Android';
  if (/Mac OS X/.test(agent)) return 'macOS';
  if (/Windows/.test(agent)) return 'Windows';
  return 'Debian, Ubuntu';
}
