// Findings as bars and sums.
import { expect, it } from 'vitest';
import { grouped } from './history';

it('findings become bars without gaps, and sums by kind and host', () => {
  const found = [
    { from: 100, kind: 'ssn', host: 'a', flows: 2 },
    { from: 120, kind: 'ssn', host: 'b', flows: 1 },
    { from: 120, kind: 'person', host: 'b', flows: 5 },
    { from: 900, kind: 'late', host: 'c', flows: 1 },
  ];
  const { bars, kinds, hosts } = grouped({ since: 100, span: 10, found }, 135);
  expect(bars).toEqual([{ from: 100, flows: 2 }, { from: 110, flows: 0 }, { from: 120, flows: 6 }, { from: 130, flows: 0 }]);
  expect(kinds.map((k) => `${k.name} ${k.flows}`)).toEqual(['person 5', 'ssn 3', 'late 1']);
  expect(hosts[0]).toEqual({ name: 'b', flows: 6 });
  expect(grouped({ since: 0, span: 1, found: [] }, 1e9).bars.length).toBe(1000);
});
