// GraphQL requests: operations with their names and variables.

export interface Operation {
  kind: 'query' | 'mutation' | 'subscription';
  name: string;
  query: string;
  /** Indented JSON; empty if there are none. */
  variables: string;
  /** The hash of a persisted query, whose text is not sent. */
  hash: string;
}

type Json = Record<string, unknown>;
const isObject = (value: unknown): value is Json => typeof value === 'object' && value !== null && !Array.isArray(value);

function operation(request: unknown): Operation | null {
  if (!isObject(request)) return null;
  const query = typeof request['query'] === 'string' ? request['query'] : '';
  const extensions = isObject(request['extensions']) ? request['extensions'] : {};
  const persisted = isObject(extensions['persistedQuery']) ? extensions['persistedQuery']['sha256Hash'] : undefined;
  const hash = typeof persisted === 'string' ? persisted : '';
  const first = /^(?:\s|#[^\n]*\n)*(?:(query|mutation|subscription)\b\s*([_A-Za-z]\w*)?|fragment\b|\{)/.exec(query);
  // A `query` that does not look like one is some other member of that name.
  if (query ? !first || !query.includes('{') : !hash) return null;
  const named = /\b(query|mutation|subscription)\s+([_A-Za-z]\w*)/.exec(query);
  const said = request['operationName'];
  const name = typeof said === 'string' && said ? said : (first?.[2] ?? named?.[2] ?? '');
  const own = name ? new RegExp(`\\b(query|mutation|subscription)\\s+${name}\\b`).exec(query)?.[1] : undefined;
  const kind = (own ?? first?.[1] ?? named?.[1] ?? 'query') as Operation['kind'];
  const given = request['variables'];
  const variables = isObject(given) && Object.keys(given).length > 0 ? JSON.stringify(given, null, 2) : '';
  return { kind, name, query: query.trim(), variables, hash };
}

/** The operations of a JSON body, one or several; none if it is not a GraphQL request. */
export function operationsIn(body: string): Operation[] {
  if (!/"(query|persistedQuery)"/.test(body)) return [];
  try {
    const value: unknown = JSON.parse(body);
    const found = (Array.isArray(value) ? value : [value]).map(operation);
    return found.every((one) => one !== null) ? (found as Operation[]) : [];
  } catch {
    return [];
  }
}
