// Who uses this page, and what they may do. The server decides; the page only says so before somebody tries.
import { get } from './api';
import type { Me, Right } from './api.gen';

const WHAT: Record<Right, string> = {
  view: 'see flows',
  read_bodies: 'read bodies and conversations',
  operate: 'decide, tag, import and send requests',
  administer: 'change settings, keys, secrets and recordings',
};

class Caller {
  /** Null until it is known, and if it cannot be read: nothing is hidden then. */
  me = $state.raw<Me | null>(null);

  /** Ends when it is known, or cannot be read. */
  readonly known = this.load();

  async load(): Promise<void> {
    try {
      this.me = await get('/me');
    } catch {
      // Whatever is tried next says what is wrong.
    }
  }

  can(...rights: Right[]): boolean {
    return this.me === null || rights.every((right) => this.me?.rights.includes(right));
  }

  /** Why something is not allowed, as a sentence; empty if it is. */
  why(...rights: Right[]): string {
    const missing = rights.filter((right) => !this.can(right));
    if (missing.length === 0) return '';
    return `Your role, ${this.me?.role ?? ''}, may not ${missing.map((right) => WHAT[right]).join(' and ')}. Ask an admin of this instance for the right ${missing.join(' and ')}.`;
  }
}

export const caller = new Caller();
