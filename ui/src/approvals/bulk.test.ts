// Pending requests by host.
import { expect, it } from 'vitest';
import { hostsOf } from './bulk';

it('hosts with the most pending requests come first, and the list is bounded', () => {
  const pending = ['b', 'a', 'c', 'c'].map((host, id) => ({ host, id }));
  expect(hostsOf(pending).map(({ host, items }) => `${host} ${items.map((i) => i.id).join()}`)).toEqual(['c 2,3', 'a 1', 'b 0']);
  expect(hostsOf(Array.from({ length: 50 }, (_, i) => ({ host: `h${i}` })))).toHaveLength(12);
});
