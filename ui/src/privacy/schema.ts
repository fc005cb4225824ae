// Extends the policy schema for completion, so that kinds are offered as values and tables.
import type { Schema } from '../rules/schema';

export function completable({ schema, kinds }: { schema: Schema; kinds: string[] }): Schema {
  const named = schema.properties ?? {};
  const settings = named['kind']?.additionalProperties;
  const ofKind = typeof settings === 'object' ? settings : {};
  const list = (old: Schema | undefined): Schema => ({ ...old, items: { type: 'string', enum: kinds } });
  return {
    ...schema,
    properties: {
      ...named,
      kinds: list(named['kinds']),
      except: list(named['except']),
      kind: { ...named['kind'], properties: Object.fromEntries(kinds.map((k) => [k, ofKind])) },
    },
  };
}
