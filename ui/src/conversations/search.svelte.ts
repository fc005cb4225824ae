// The search in the texts of all conversations: page by page, each a bounded piece of work of the server.
import { errorMessage, get } from '../lib/api';
import type { FoundConversation } from './types';

export class TextSearch {
  text = $state('');
  found = $state.raw<FoundConversation[]>([]);
  next = $state<string | null>(null);
  searched = $state(0);
  busy = $state(false);
  failure = $state('');
  private turn = 0;

  /** Searches from the newest on; an empty text ends the search. */
  async start(text: string, query: string, all: boolean): Promise<void> {
    this.text = text.trim();
    this.found = [];
    this.next = null;
    this.searched = 0;
    this.failure = '';
    const turn = (this.turn += 1);
    if (this.text) await this.go(turn, query, all);
  }

  /** Continues where the search ended. */
  async more(query: string, all: boolean): Promise<void> {
    if (this.next && !this.busy) await this.go(this.turn, query, all);
  }

  private async go(turn: number, query: string, all: boolean): Promise<void> {
    this.busy = true;
    try {
      const page = await get('/conversations/search', { text: this.text, query, all: all ? 'true' : undefined, after: this.next ?? undefined });
      if (turn !== this.turn) return;
      this.found = [...this.found, ...page.conversations];
      this.searched += page.searched;
      this.next = page.next;
    } catch (error) {
      if (turn === this.turn) this.failure = errorMessage(error);
    }
    if (turn === this.turn) this.busy = false;
  }
}
