// Instructions for trusting the certificate authority on each system.

export interface Steps {
  system: string;
  steps: { text: string; command?: string }[];
}

const one = { text: 'Or let Interflow do it on this machine:', command: 'interflow ca install' };

export const steps: Steps[] = [
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
    system: 'iOS',
    steps: [
      { text: 'Copy the certificate to the device, by AirDrop or mail, and open it there.' },
      { text: 'Settings, General, VPN & Device Management: install the profile.' },
      { text: 'Settings, General, About, Certificate Trust Settings: switch full trust on.' },
    ],
  },
  {
    system: 'Android',
    steps: [
      { text: 'Copy the certificate to the device.' },
      { text: 'Settings, Security, Encryption & credentials, Install a certificate, CA certificate.' },
      { text: 'Apps trust it only if their network security configuration allows it; browsers do.' },
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
      { text: 'Run it so that Node, Python, Go, curl and others trust the authority for this run only:', command: 'interflow exec -- COMMAND' },
      { text: 'Or set the environment variables yourself:', command: 'eval "$(interflow ca trust-env)"' },
    ],
  },
];

/** The operating system according to the user agent. */
export function systemOf(agent: string): string {
  if (/iPhone|iPad/.test(agent)) return 'iOS';
  if (/Android/.test(agent)) return 'Android';
  if (/Mac OS X/.test(agent)) return 'macOS';
  if (/Windows/.test(agent)) return 'Windows';
  return 'Debian, Ubuntu';
}
