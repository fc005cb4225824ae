// Why the bytes of a tunnel were passed through uninspected, in words.

const REASONS: Record<string, [short: string, text: string]> = {
  interception_off: ['not intercepted', 'interception is off (intercept.mode)'],
  not_listed: ['not listed', 'the host is not listed in intercept.hosts'],
  excluded: ['excluded', 'the host is excluded by intercept.exclude'],
  rule: ['rule', 'a rule passes it through'],
  pinning_bypass: ['pinned', 'the client refused the certificate for this host although it trusts the CA: it pins'],
  unknown_protocol: ['unknown', 'its bytes are neither TLS nor HTTP'],
  server_first: ['server first', 'the server spoke first'],
  not_http: ['not HTTP', 'what is inside the TLS is not HTTP'],
  nested_proxy: ['proxy', 'the tunnel leads to another proxy'],
};

/** The words of a badge. */
export function shortReason(reason: string): string {
  return REASONS[reason]?.[0] ?? reason;
}

/** The reason as the end of a sentence. */
export function explanation(reason: string): string {
  return REASONS[reason]?.[1] ?? reason;
}
