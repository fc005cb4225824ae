// The command palette finds things by the words that people use.
import { describe, expect, it } from 'vitest';
import { matching, TOPICS } from './paletteEntries';

const topics = TOPICS.map((t) => ({ label: t.label, hint: t.page, words: t.words, run: () => undefined }));

describe('the palette', () => {
  it.each([
    ['token', /access tokens/], ['logout', /log out/], ['cost', /cost/i], ['search', /Search in bodies/], ['doctor', /doctor/], ['https', /CA certificate/],
  ])('finds %s', (text, label) => {
    expect(matching(topics, text).map((e) => e.label)).toEqual(expect.arrayContaining([expect.stringMatching(label)]));
  });

  it('puts labels that begin with the text before those that contain it, and other words last', () => {
    const entries = ['Theme: dark', 'Dark matter', 'Other'].map((label) => ({ label, hint: '', words: label === 'Other' ? 'dark' : '', run: () => undefined }));
    expect(matching(entries, 'dark').map((e) => e.label)).toEqual(['Dark matter', 'Theme: dark', 'Other']);
    expect(matching(entries, '')).toEqual(entries);
  });
});
