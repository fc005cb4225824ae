import { expect, it, vi } from 'vitest';
import { caller } from '../lib/me.svelte';
import { links } from './history.svelte';

vi.mock('../lib/me.svelte', () => ({ caller: { me: null } }));

const link = (name: string) => ({ link: name, destination: name, endpoint: '/proxy/stream', created: Date.now(), expires: null });
const as = (name: string) => (caller.me = { name } as typeof caller.me);

it('the links that a person forgets are those in the list, not those of other people', () => {
  as('bo');
  links.add(link('theirs'));
  as('ann');
  links.add(link('mine'));
  links.clear();
  expect(links.list).toEqual([]);
  as('bo');
  // The page is shown once its user is known; here the list is read again after a change.
  links.add(link('another'));
  expect(links.list.map((l) => l.link)).toEqual(['another', 'theirs']);
});
