// Prices and capabilities of models in words.
import type { ModelPrice, ModelView } from '../lib/api.gen';
import * as format from '../lib/format';

/** A price in dollars per million tokens. */
export function perMillion(price: number | null | undefined): string {
  return price === undefined ? '—' : price === null ? 'not published' : `$${price}`;
}

const PARTS: Record<string, string> = {
  reasoning: 'Reasoning', cache_read: 'Cache read', cache_write: 'Cache write', cache_write_long: 'Cache write, long',
  audio_input: 'Audio input', audio_cache_read: 'Audio cache read', audio_output: 'Audio output', image_input: 'Image input',
  image_cache_read: 'Image cache read', image_output: 'Image output', video_input: 'Video input', search: 'Search, each',
  maps: 'Maps query, each', second_input: 'Second of input', second_output: 'Second of output', image: 'Image, each',
  character: 'Character', page: 'Page', request: 'Request', session: 'Session',
};

/** The parts of a price beside input and output, with its conditions. */
export function extraPrices(price: ModelPrice): [string, string][] {
  const rates = price as Record<string, unknown>;
  const parts = Object.entries(PARTS).filter(([unit]) => unit in rates).map(([unit, name]): [string, string] => [name, perMillion(rates[unit] as number | null)]);
  const long = (price.over ?? []).map((row): [string, string] => {
    const { input, output } = row as { input?: number | null; output?: number | null };
    return [`Prompts over ${format.count(row.tokens)}`, `${perMillion(input)} in, ${perMillion(output)} out`];
  });
  const tiers = Object.entries(price.tiers ?? {}).map(([name, tier]): [string, string] => [`Level ${name}`, tier.factor == null ? 'prices of its own' : `× ${tier.factor}`]);
  const regions = Object.entries(price.regions ?? {}).map(([name, factor]): [string, string] => [`Region ${name}`, `× ${factor}`]);
  return [...parts, ...long, ...tiers, ...regions];
}

/** What a model is for, takes and refuses. */
export function takes(model: ModelView): [string, string][] {
  const c = model.capabilities;
  const rows: [string, string | undefined][] = [
    ['Kind', model.mode ?? undefined],
    ['Context', model.limits?.input ? `${format.count(model.limits.input)} in, ${model.limits.output ? format.count(model.limits.output) : '—'} out` : undefined],
    ['APIs', c?.apis?.join(', ')],
    ['Reads', c?.input?.join(', ')],
    ['Writes', c?.output?.join(', ')],
    ['Thinks', c ? { never: 'never', optional: 'if asked to', default: 'unless turned off', always: 'always' }[c.thinking ?? 'never'] : undefined],
    ['Efforts', c?.effort ? `${c.effort.levels?.join(', ') ?? ''}${c.effort.default ? `; ${c.effort.default} by default` : ''}` : undefined],
    ['Structured output', c ? (c.structured_output ? 'yes' : 'no') : undefined],
    ['Ends', model.ends ? `${model.ends}${model.successor ? `, then ${model.successor}` : ''}` : undefined],
  ];
  return rows.filter((row): row is [string, string] => !!row[1]);
}
