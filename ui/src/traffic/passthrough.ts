// Texts for the reasons why a tunnel was passed through without inspection.

const REASONS: Record<string, [short: string, text: string]> = {
  interception_off: ['not intercepted', 'interception is off (intercept.mode)'],
  not_listed: ['not listed', 'the host is not listed in intercept.hosts'],
  excluded: ['excluded', 'the host is excluded by intercept.exclude'],
  rule: ['rule', 'a rule passes it through'],
  pinning_bypass: ['pinned', 'certificate pinning: the client trusts the CA, but rejected the certificate for this host'],
  unknown_protocol: ['unknown', 'the protocol is neither TLS nor HTTP'],
  server_first: ['server first', 'the server spoke first'],
  not_http: ['not HTTP', 'the decrypted protocol is not HTTP'],
  nested_proxy: ['proxy', 'the tunnel goes to another proxy'],
};

/** Short text for a badge. */
export function shortReason(reason: string): string {
  return REASONS[reason]?.[0] ?? reason;
}

/** The reason as the end of a sentence. */
export function explanation(reason: string): string {
  return REASONS[reason]?.[1] ?? reason;
}
