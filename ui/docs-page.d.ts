/** A part of a page of the documentation, below one heading. */
export interface Section {
  url: string;
  title: string;
  heading: string;
  text: string;
}
export function commandsOf(block: string): string;
export function search(sections: Section[], query: string, most?: number): Section[];
export function excerptOf(text: string, query: string): string;
